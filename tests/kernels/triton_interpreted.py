"""Triton's kernels on the CPU's tensors, by its interpreter: test_triton.py runs it where TRITON_INTERPRET is 1.

What is registered for CUDA stands in at the CPU's keys here, and is asked what the CPU's kernels are asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from kernels import conformance
from kernels.conformance import Sample, canonical, gradient_for, outputs_of, switched
from kernels.requirements import asked, keeps
from torch.nn import functional as F  # noqa: N812 the usual name

import nhwc
from nhwc.kernels import gpu
from nhwc.kernels.registry import Replacement
from nhwc.kernels.triton import conversion, grid_sample, norm

#: torch has them for CUDA alone; they answer by what replaces grid_sampler_2d.
CUDNN = {"aten::cudnn_grid_sampler", "aten::cudnn_grid_sampler_backward"}


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """How many calls of each operator its kernel for CUDA answered; it stands in on the CPU meanwhile."""
    assert gpu.is_interpreted()
    found: Counter[str] = Counter()
    before = {kernel.name: list(kernel.replacements) for kernel in nhwc.kernels.kernels()}
    for kernel in nhwc.kernels.kernels():
        for_cuda = [each for each in kernel.replacements if "CUDA" in each.key and each.operator not in CUDNN]
        if for_cuda:
            composites = [each for each in kernel.replacements if each.key == "CompositeImplicitAutograd"]
            kernel.replacements[:] = composites + [_on_the_cpu(each, found) for each in for_cuda]
    yield found
    for kernel in nhwc.kernels.kernels():
        kernel.replacements[:] = before[kernel.name]


def _on_the_cpu(each: Replacement, found: Counter[str]) -> Replacement:
    def counted(*operands: Any, **options: Any) -> Any:
        result = each.run(*operands, **options)
        found[each.operator] += result is not NotImplemented
        return result

    counted.__name__ = each.run.__name__
    return Replacement(each.operator, each.key.replace("CUDA", "CPU"), counted)


@pytest.fixture
def served(counts: Counter[str]) -> Counter[str]:
    counts.clear()
    return counts


def norms(x: torch.Tensor, *affine: torch.Tensor, groups: int) -> torch.Tensor:
    return F.group_norm(x, groups, *affine)


NORMS = [
    Sample("groups of two", partial(norms, groups=3), ((2, 6, 5, 7), (6,), (6,))),
    Sample("one group, odd channels", partial(norms, groups=1), ((2, 33, 2, 3),)),
    Sample("a weight alone, 3-D", partial(norms, groups=4), ((2, 8, 2, 3, 3), (8,))),
    Sample("many tiles", partial(norms, groups=2), ((1, 130, 8, 10), (130,), (130,))),
    Sample("one pixel", partial(norms, groups=2), ((3, 6, 1, 2), (6,), (6,))),
]
INSTANCES = [
    Sample("plain", F.instance_norm, ((2, 5, 4, 6),)),
    Sample(
        "affine, 3-D",
        lambda x, weight, bias: F.instance_norm(x, None, None, weight, bias),
        ((1, 3, 2, 3, 4), (3,), (3,)),
    ),
]
POOLS = [
    Sample("overlapping", lambda x: F.avg_pool3d(x, 3, 2, 1), ((2, 5, 5, 4, 6),)),
    Sample(
        "ceil, without padding", lambda x: F.avg_pool3d(x, (2, 3, 1), 2, (1, 1, 0), True, False), ((2, 3, 5, 6, 4),)
    ),
    Sample("a divisor", lambda x: F.avg_pool3d(x, 2, divisor_override=3), ((1, 3, 4, 5, 2),)),
    Sample("many tiles", lambda x: F.avg_pool3d(x, 2, 1), ((1, 130, 2, 3, 3),)),
]
ADAPTIVE = [
    Sample("2-D", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), ((2, 5, 5, 7),)),
    Sample("3-D", lambda x: F.adaptive_avg_pool3d(x, (3, 2, 4)), ((2, 3, 5, 3, 6),)),
    Sample("more outputs than inputs", lambda x: F.adaptive_avg_pool3d(x, (5, 2, 7)), ((1, 3, 2, 3, 3),)),
    Sample("global, 2-D", lambda x: F.adaptive_avg_pool2d(x, 1), ((2, 5, 3, 4),)),
    Sample("global, 3-D", lambda x: F.adaptive_avg_pool3d(x, 1), ((2, 5, 3, 4, 2),)),
]


def sampled(mode: str, padding: str, aligned: bool, volume: bool = False) -> Sample:
    call = partial(F.grid_sample, mode=mode, padding_mode=padding, align_corners=aligned)
    shapes = ((2, 5, 3, 4, 4), (2, 2, 3, 2, 3)) if volume else ((2, 5, 5, 6), (2, 3, 4, 2))
    return Sample(f"{mode}, {padding}, {aligned}, {4 + volume}-D", call, shapes)


GRIDS = [
    sampled("bilinear", "zeros", False),
    sampled("bilinear", "border", True),
    sampled("bilinear", "reflection", False, volume=True),
    sampled("nearest", "reflection", True),
    sampled("nearest", "zeros", False, volume=True),
]
SOFTMAXES = [
    Sample("over channels", lambda x: x.softmax(1), ((2, 5, 3, 4),)),
    Sample("over rows", lambda x: x.log_softmax(2), ((2, 5, 3, 4, 2),)),
]
ROLLS = [Sample("two dimensions", lambda x: x.roll((1, -2), (2, 3)), ((2, 5, 3, 4),))]
SHUFFLES = [Sample("the operator", lambda x: F.channel_shuffle(x, 3), ((2, 6, 3, 4),))]

ALL = {
    "group_norm": NORMS,
    "instance_norm": INSTANCES,
    "avg_pool3d": POOLS,
    "adaptive_avg_pool": ADAPTIVE,
    "grid_sample": GRIDS,
    "channel_shuffle": SHUFFLES,
    "softmax": SOFTMAXES,
    "roll": ROLLS,
}
MOVED = {"channel_shuffle", "roll"}
ARITHMETIC = {name: samples for name, samples in ALL.items() if name not in MOVED}
#: The others have an operand, or a backward, whose layout is not theirs to choose.
LAID_OUT = {name: samples for name, samples in ALL.items() if name not in {"grid_sample", "roll"}}


@keeps(
    asked("group_norm", NORMS, "accuracy"),
    *(asked(name, samples[:1], "channels last") for name, samples in LAID_OUT.items()),
    *(asked(name, samples[1:], "channels last", hows=["contiguous"]) for name, samples in LAID_OUT.items()),
    asked("roll", ROLLS, "channels last", hows=["channels_last"]),
)
def test_a_kernel_keeps_to_what_those_of_the_cpu_keep_to(check: Callable[[], None], served: Counter[str]) -> None:
    check()
    assert served.total(), "the original ran alone"


@pytest.mark.slow
@keeps(*(asked(name, samples, "derivatives", "accuracy") for name, samples in ALL.items()))
def test_derivatives_and_accuracy_of_every_sample(check: Callable[[], None], served: Counter[str]) -> None:
    check()
    assert served.total(), "the original ran alone"


@pytest.mark.parametrize("how", conformance.GRADIENTS)
@pytest.mark.parametrize("sample", GRIDS, ids=str)
def test_sampling_is_channels_last_and_so_is_its_gradient(sample: Sample, how: str, served: Counter[str]) -> None:
    with switched("grid_sample"):
        (output,), gradients = conformance.run(sample, sample.operands(torch.float32), how)
    assert served.total() == 2
    assert gradients[0] is not None
    assert conformance.is_canonical(output)
    assert conformance.is_canonical(gradients[0])


@keeps(*(asked(name, samples[:1], "steps aside", "odd layouts") for name, samples in ALL.items()))
def test_other_layouts_run_the_original(check: Callable[[], None], counts: Counter[str]) -> None:
    check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("name", "sample"), [(name, sample) for name, samples in ARITHMETIC.items() for sample in samples], ids=str
)
def test_results_are_exact_but_for_their_rounding(
    name: str, sample: Sample, dtype: torch.dtype, served: Counter[str]
) -> None:
    operands = sample.operands(dtype)
    with switched(name):
        (output,) = outputs_of(sample.call(*operands))
        grad = gradient_for(output, "contiguous")
        found = [output, *torch.autograd.grad(output, operands, grad)]
    assert served.total() >= 2
    exact_operands = [each.detach().double().requires_grad_() for each in operands]
    exact = sample.call(*exact_operands)
    wanted = [exact, *torch.autograd.grad(exact, exact_operands, grad.double())]
    # a result that is rounded once, of sums in float32
    for one, other in zip(found, wanted, strict=True):
        allowed = torch.finfo(dtype).eps * 0.75 + 64 * torch.finfo(torch.float32).eps
        assert conformance.error(one.detach(), other.detach()) <= allowed * max(float(other.detach().abs().max()), 1.0)
        assert one.dtype == dtype


SHAPES = {
    "group_norm": (lambda x: F.group_norm(x, 1), [(2, 1, 3, 4), (2, 4, 1, 1), (0, 4, 3, 4), (2, 3, 1, 4, 1)]),
    "instance_norm": (F.instance_norm, [(2, 1, 3, 4), (2, 3, 1, 2), (1, 3, 2, 2, 2)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 1), [(2, 1, 3, 4, 2), (2, 4, 1, 1, 1), (0, 4, 3, 4, 2), (1, 3, 1, 1, 4)]),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool3d(x, 1), [(2, 1, 3, 4, 2), (2, 4, 1, 1, 1), (1, 3, 1, 1, 4)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [(2, 4, 1, 1), (0, 4, 3, 4), (2, 2, 3, 4)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_one_channel_one_pixel_and_none(name: str, counts: Counter[str]) -> None:
    conformance.check_shapes(name, *SHAPES[name])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("group_norm", lambda x: F.group_norm(x, 5)),
        ("group_norm", lambda x: F.group_norm(x, 2, torch.ones(3))),
        ("avg_pool3d", lambda x: F.avg_pool3d(x.unsqueeze(2), (2, 1, 1))),
        ("grid_sample", lambda x: F.grid_sample(x, torch.zeros(3, 1, 1, 2), align_corners=True)),
    ],
)
def test_bad_input_is_refused_in_torchs_words(name: str, call: Any, counts: Counter[str]) -> None:
    x = canonical(torch.randn(2, 6, 4, 4))
    conformance.check_error(name, lambda: call(x))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, which computes for the interpreter
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_group(value: float, served: Counter[str]) -> None:
    x = torch.randn(2, 4, 5, 5)
    x[0, 0, 0, 0] = value
    with switched("instance_norm"):
        found = F.instance_norm(canonical(x))
    assert served.total()
    assert torch.equal(found.isnan(), F.instance_norm(x).isnan())


def test_a_large_mean_costs_no_digits(served: Counter[str]) -> None:
    x = torch.randn(1, 64, 16, 16, dtype=torch.float64)
    shifted = (x + 4096.0).float()
    with switched("group_norm"):
        found = F.group_norm(canonical(shifted), 4)
    assert served.total()
    exact = F.group_norm(shifted.double(), 4)
    assert conformance.error(found, exact) <= 2.0 * conformance.error(F.group_norm(shifted, 4), exact) + 1e-6


@pytest.mark.parametrize("name", ["silu", "hardswish", "relu6", "elu", "gelu", "mish"])
def test_activations_gradients_follow_their_input(name: str, served: Counter[str]) -> None:
    x = canonical(torch.randn(2, 5, 3, 4)).requires_grad_()
    with switched("activation_backward"):
        (found,) = torch.autograd.grad(getattr(F, name)(x).mean((2, 3)).sum(), x)
    assert served.total() == 1
    assert conformance.is_canonical(found)
    torch.testing.assert_close(found, torch.autograd.grad(getattr(F, name)(x).mean((2, 3)).sum(), x)[0])


def test_norms_are_the_same_bits_in_every_run(counts: Counter[str]) -> None:
    x = canonical(torch.randn(1, 130, 8, 10))
    with switched("group_norm"):
        assert torch.equal(F.group_norm(x, 2), F.group_norm(x, 2))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, which computes for the interpreter
@pytest.mark.parametrize("place", [float("nan"), float("inf"), -float("inf"), 3e38, -1e5])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_points_far_outside_read_zeros(mode: str, place: float, served: Counter[str]) -> None:
    x = canonical(torch.randn(1, 4, 3, 3))
    grid = torch.tensor([[[[place, 0.0], [0.1, place], [0.2, 0.3]]]])
    with switched("grid_sample"):
        found = F.grid_sample(x, grid, mode, "zeros", False)
    assert served.total()
    assert (found[..., :2] == 0.0).all()
    torch.testing.assert_close(found[..., 2:], F.grid_sample(x, grid[:, :, 2:], mode, "zeros", False))


def test_a_grid_of_any_strides(served: Counter[str]) -> None:
    x, grid = canonical(torch.randn(2, 5, 4, 4)), torch.randn(2, 2, 3, 4).permute(0, 2, 3, 1)
    with switched("grid_sample"):
        found = F.grid_sample(x, grid, align_corners=False)
    assert served.total()
    torch.testing.assert_close(found, F.grid_sample(x, grid, align_corners=False))


def test_sampling_steps_aside_where_its_sums_must_be_in_order(served: Counter[str]) -> None:
    x, grid = canonical(torch.randn(2, 5, 4, 4)).requires_grad_(), torch.randn(2, 2, 2, 2)
    torch.use_deterministic_algorithms(True)
    try:
        with switched("grid_sample"):
            F.grid_sample(x, grid, align_corners=False).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert served["aten::grid_sampler_2d"] == 1
    assert served["aten::grid_sampler_2d_backward"] == 0


def test_cudnns_sampling_is_the_bilinear_one_between_zeros() -> None:
    x, grid = canonical(torch.randn(2, 5, 4, 4)), torch.randn(2, 2, 3, 2)
    leaves = x.clone().requires_grad_(), grid.clone().requires_grad_()
    wanted = F.grid_sample(*leaves, align_corners=True)
    grad = canonical(torch.randn(wanted.shape))
    torch.testing.assert_close(grid_sample.cudnn_grid_sampler(x, grid), wanted)
    found = grid_sample.cudnn_grid_sampler_backward(x, grid, grad)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, leaves, grad))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 150, 97), (1, 130, 3, 5, 11)], ids=str)
def test_conversion_moves_every_number(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, shape).to(dtype)
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    there = conversion.as_channels_last(x)
    assert conformance.is_canonical(there)
    assert torch.equal(there, x)
    back = torch.empty(shape, dtype=dtype)
    conversion.transpose(there, back)
    assert torch.equal(back, x)
    cloned = conversion.clone(x, memory_format=last)
    assert cloned is NotImplemented if x.numel() < 65536 else torch.equal(cloned, x)


def test_what_conversion_leaves_to_torch() -> None:
    x = torch.randn(2, 8, 100, 100)
    last = torch.channels_last
    for other in (x[:, ::2], x.transpose(2, 3), x.to(memory_format=last), x.to(torch.complex128), x[:, :1, :4]):
        assert conversion.clone(other, memory_format=last) is NotImplemented
    assert conversion.clone(x, memory_format=torch.preserve_format) is NotImplemented
    assert conversion.clone(x) is NotImplemented


def test_mixed_parameters_keep_their_dtype(served: Counter[str]) -> None:
    x = canonical(torch.randn(2, 8, 3, 3)).bfloat16().requires_grad_()
    weight, bias = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    plain = torch.autograd.grad(F.group_norm(x, 4, weight, bias).sum(), (x, weight, bias))
    with switched("group_norm"):
        found = torch.autograd.grad(F.group_norm(x, 4, weight, bias).sum(), (x, weight, bias))
    assert served.total() == 2
    for one, other in zip(plain, found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


def test_only_the_gradients_that_are_wanted() -> None:
    x, weight = canonical(torch.randn(2, 6, 3, 3)), torch.randn(6)
    _, mean, rstd = norm.native_group_norm(x, weight, None, 2, 6, 9, 3, 1e-5)
    found = norm.native_group_norm_backward(x, x, mean, rstd, weight, 2, 6, 9, 3, [False, True, False])
    assert [each is None for each in found] == [True, False, True]
