"""Group and instance norm: every combination of statistics and affine parameters, 2-D and 3-D."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample, dtypes
from torch import nn

import nhwc

SHAPES = {"2-D": (2, 6, 5, 7), "3-D": (2, 4, 3, 5, 4), "wide": (2, 96, 9, 8), "one image": (1, 3, 40, 33)}


def norms(name: str) -> list[Sample]:
    samples = []
    for label, shape in SHAPES.items():
        channels = (shape[1],)
        call = (
            F.instance_norm if name == "instance_norm" else (lambda x, *wb: F.group_norm(x, x.shape[1] // 2 or 1, *wb))
        )
        if name == "group_norm" and shape[1] % (shape[1] // 2):
            call = lambda x, *wb: F.group_norm(x, 1, *wb)  # noqa: E731
        if name == "instance_norm":
            samples.append(
                Sample(
                    f"affine, {label}",
                    lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
                    (shape, channels, channels),
                )
            )
        else:
            samples.append(Sample(f"affine, {label}", call, (shape, channels, channels)))
        samples.append(Sample(f"plain, {label}", call, (shape,)))
    return samples


def frozen(x: torch.Tensor) -> torch.Tensor:
    channels = x.shape[1]
    mean = torch.linspace(-1, 1, channels, dtype=x.dtype)
    variance = torch.linspace(0.5, 2, channels, dtype=x.dtype)
    return F.instance_norm(x, mean, variance, use_input_stats=False)


INSTANCE = [*norms("instance_norm"), Sample("frozen statistics", frozen, ((2, 6, 5, 7),))]
CASES = [pytest.param("instance_norm", each, id=f"instance, {each}") for each in INSTANCE] + [
    pytest.param("group_norm", each, id=f"group, {each}") for each in norms("group_norm")
]
every = pytest.mark.parametrize(("kernel", "sample"), CASES)


@every
@dtypes
def test_everything_is_channels_last(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout(kernel, sample, dtype)


@every
@dtypes
def test_nothing_is_copied(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_no_copies(kernel, sample, dtype)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_errors_are_no_larger(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(kernel, sample, dtype)


@every
def test_derivatives(kernel: str, sample: Sample) -> None:
    conformance.check_derivatives(kernel, sample)


@every
def test_contiguous_input_takes_the_original(kernel: str, sample: Sample) -> None:
    conformance.check_steps_aside(kernel, sample, torch.float32)


@pytest.mark.parametrize(("kernel", "sample"), CASES[:2] + CASES[-2:])
def test_odd_layouts(kernel: str, sample: Sample) -> None:
    conformance.check_odd_layouts(kernel, sample)


@pytest.mark.parametrize(
    ("kernel", "call"), [("instance_norm", F.instance_norm), ("group_norm", lambda x: F.group_norm(x, 1))]
)
def test_shapes(kernel: str, call: object) -> None:
    shapes = [(0, 3, 4, 4), (2, 1, 4, 4), (2, 3, 1, 1), (2, 3, 1, 5), (1, 3, 4, 4, 4), (2, 1, 2, 2, 2), (2, 3, 0, 4)]
    conformance.check_shapes(kernel, call, shapes)  # type: ignore[arg-type]


def test_a_large_mean_costs_no_digits() -> None:
    x = torch.randn(2, 8, 32, 32) + 1000.0
    exact = F.instance_norm(x.double())
    with nhwc.kernels.use("instance_norm"):
        found = F.instance_norm(x.to(memory_format=torch.channels_last))
    assert (found - exact).abs().max() <= 2 * (F.instance_norm(x) - exact).abs().max()


@pytest.mark.parametrize(
    "layer",
    [
        nn.InstanceNorm2d(5, affine=True, track_running_stats=True),
        nn.InstanceNorm2d(5, momentum=0.3, track_running_stats=True),
    ],
)
def test_running_statistics_move_as_torchs_do(layer: nn.Module) -> None:
    import copy

    ours = copy.deepcopy(layer)
    x = torch.randn(3, 5, 6, 7)
    for _ in range(2):
        layer(x)
        with nhwc.kernels.use("instance_norm"):
            ours(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(layer.named_buffers()))


def test_float32_parameters_with_bfloat16_input() -> None:
    x = torch.randn(2, 8, 6, 6).bfloat16().to(memory_format=torch.channels_last).requires_grad_()
    weight, bias = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    plain = torch.autograd.grad(F.group_norm(x, 4, weight, bias).sum(), (x, weight, bias))
    with nhwc.kernels.use("group_norm"):
        result = F.group_norm(x, 4, weight, bias)
        found = torch.autograd.grad(result.sum(), (x, weight, bias))
    assert result.dtype == torch.bfloat16
    for one, other in zip(plain, found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("infinite", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_group(infinite: float) -> None:
    x = torch.randn(2, 4, 5, 5)
    x[0, 0, 0, 0] = infinite
    with nhwc.kernels.use("instance_norm"):
        found = F.instance_norm(x.to(memory_format=torch.channels_last))
    assert torch.equal(found.isnan(), F.instance_norm(x).isnan())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.instance_norm(x, weight=torch.ones(3)),
        lambda x: F.instance_norm(x, torch.zeros(7), torch.ones(7)),
        lambda x: F.group_norm(x, 5),
        lambda x: F.group_norm(x, 2, torch.ones(3)),
    ],
)
def test_bad_input_is_refused_in_torchs_words(call: object) -> None:
    x = torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last)
    conformance.check_error("instance_norm", lambda: call(x))  # type: ignore[operator]


@pytest.mark.parametrize("shape", [(1, 4, 5, 6), (1, 4, 3, 5, 6)], ids=str)
def test_one_contiguous_sample_has_the_right_gradient_whatever_its_format(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(shape, dtype=torch.float64)
    (expected,) = torch.autograd.grad(F.instance_norm(x), x, gradient)
    with nhwc.kernels.use("instance_norm"):
        (found,) = torch.autograd.grad(F.instance_norm(x), x, conformance.canonical(gradient))
    torch.testing.assert_close(found, expected)
