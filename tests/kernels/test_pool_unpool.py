"""Maximum unpooling: places, gradients of every order, and what torch refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import DTYPES, Sample
from kernels.requirements import asked, keeps
from torch.autograd import forward_ad

import nhwc

KERNEL = "max_unpool"


def places(shape: tuple[int, ...]) -> Callable[[torch.Generator], torch.Tensor]:
    """Makes the indices of a pooling of twice the size: (N, C, ...) of ``shape``."""

    def make(random: torch.Generator) -> torch.Tensor:
        doubled = (*shape[:2], *(2 * size for size in shape[2:]))
        pool = F.max_pool2d if len(shape) == 4 else F.max_pool3d
        return pool(torch.randn(doubled, generator=random), 2, return_indices=True)[1]

    return make


def sample(name: str, shape: tuple[int, ...], size: tuple[int, ...] | None = None) -> Sample:
    unpool = F.max_unpool2d if len(shape) == 4 else F.max_unpool3d
    sizes = list(size or (2 * each for each in shape[2:]))
    return Sample(name, lambda x, at: unpool(x, at, 2, output_size=sizes), (shape, shape), {1: places(shape)})


SAMPLES = [
    sample("2-D", (2, 5, 3, 4)),
    sample("2-D, a larger image", (2, 5, 3, 4), (7, 9)),
    sample("2-D, wide", (1, 70, 4, 3)),
    sample("2-D, several ranges", (1, 3, 40, 31)),
    sample("3-D", (2, 6, 3, 2, 4)),
]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)


def of_the_image(sample: Sample) -> Sample:
    """The sample with its places fixed: gradcheck moves every floating-point operand, and they are none."""
    _, at = sample.operands(torch.float64)
    return Sample(sample.name, lambda x: sample.call(x, at), sample.shapes[:1])


@keeps(
    asked(KERNEL, SAMPLES, "channels last", dtypes=DTYPES),
    asked(KERNEL, SAMPLES, "no copies", "steps aside", "odd layouts"),
    asked(KERNEL, [of_the_image(each) for each in SAMPLES if max(each.shapes[0]) < 30], "derivatives"),
)
def test_it_keeps_to(check: Callable[[], None]) -> None:
    check()


@every
@every_dtype
def test_values_and_gradients_are_the_originals_to_the_bit(sample: Sample, dtype: torch.dtype) -> None:
    wanted = conformance.run(sample, sample.operands(dtype, channels_last=False), "contiguous")
    with nhwc.kernels.use(KERNEL):
        found = conformance.run(sample, sample.operands(dtype), "channels_last")
    assert torch.equal(found[0][0], wanted[0][0])
    assert found[1][0] is not None
    assert wanted[1][0] is not None
    assert torch.equal(found[1][0], wanted[1][0])


def test_a_gradient_of_third_order_reaches_the_input() -> None:
    (image, at) = SAMPLES[0].operands(torch.float64)
    with nhwc.kernels.use(KERNEL):
        value = SAMPLES[0].call(image, at).pow(4).sum()
        for factor in (4.0, 12.0, 24.0):
            (grad,) = torch.autograd.grad(value, image, create_graph=True)
            assert grad.requires_grad
            value = grad.sum()
            order = {4.0: 3, 12.0: 2, 24.0: 1}[factor]
            torch.testing.assert_close(grad, factor * image**order)


def test_contiguous_indices_serve_as_well() -> None:
    (image, at) = SAMPLES[0].operands(torch.float32)
    with nhwc.kernels.use(KERNEL):
        found = SAMPLES[0].call(image, at.contiguous())
    assert conformance.is_canonical(found)
    assert torch.equal(found, SAMPLES[0].call(image, at))


def test_the_last_of_several_values_for_one_place_stays() -> None:
    image = conformance.canonical(torch.arange(24.0).view(1, 2, 3, 4))
    at = torch.full((1, 2, 3, 4), 5)
    with nhwc.kernels.use(KERNEL):
        found = F.max_unpool2d(image, at, 2, output_size=(6, 8))
    assert found.flatten(2)[0, :, 5].tolist() == [11.0, 23.0]
    assert found.count_nonzero() == 2


def test_odd_shapes_answer_alike() -> None:
    for shape in ((2, 1, 3, 4), (2, 3, 1, 1), (0, 3, 2, 2), (2, 0, 2, 2), (1, 1, 1, 1)):
        at = torch.zeros(shape, dtype=torch.int64)
        conformance.check_shapes(KERNEL, lambda x, at=at: torch.ops.aten.max_unpool2d(x, at, [4, 5]), [shape])


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own, on its first forward gradient
def test_forward_mode_takes_the_originals_formula() -> None:
    image, at = (each.detach() for each in SAMPLES[0].operands(torch.float64))
    with nhwc.kernels.use(KERNEL), forward_ad.dual_level():
        dual = forward_ad.make_dual(image, torch.ones_like(image))
        tangent = forward_ad.unpack_dual(SAMPLES[0].call(dual.requires_grad_(), at)).tangent
    assert tangent is not None
    assert tangent.sum() == image.numel()


def refused() -> dict[str, Callable[[], Any]]:
    image, at = (each.detach() for each in SAMPLES[0].operands(torch.float32))
    volume, there = (each.detach() for each in SAMPLES[4].operands(torch.float32))
    unpool2d, unpool3d = torch.ops.aten.max_unpool2d, torch.ops.aten.max_unpool3d
    return {
        "a place beyond the end": lambda: unpool2d(image, torch.full_like(at, 48), [6, 8]),
        "a negative place": lambda: unpool2d(image, torch.full_like(at, -1), [6, 8]),
        "a place beyond a smaller end": lambda: unpool3d(
            volume, torch.full_like(there, 8), [2, 2, 2], [2] * 3, [0] * 3
        ),
        "indices of another shape": lambda: unpool2d(image, at[:1], [6, 8]),
        "indices of another type": lambda: unpool2d(image, at.int(), [6, 8]),
        "no stride": lambda: unpool3d(volume, there, [6, 4, 8], [0, 2, 2], [0] * 3),
        "one size": lambda: unpool2d(image, at, [6]),
    }


@pytest.mark.parametrize("case", refused())
def test_bad_arguments_are_refused_in_the_originals_words(case: str) -> None:
    conformance.check_error(KERNEL, refused()[case])


def test_deterministic_algorithms_refuse_it_as_torch_does() -> None:
    image, at = (each.detach() for each in SAMPLES[0].operands(torch.float32))
    torch.use_deterministic_algorithms(True)
    try:
        conformance.check_error(KERNEL, lambda: torch.ops.aten.max_unpool2d(image, at, [6, 8]))
    finally:
        torch.use_deterministic_algorithms(False)
