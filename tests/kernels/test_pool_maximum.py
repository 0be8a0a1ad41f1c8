"""Adaptive and fractional maximum pooling with indices: values, ties and NaN are torch's own, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import DTYPES, Sample
from kernels.requirements import asked, keeps

import nhwc

Call = Callable[[torch.Tensor], Any]


def numbers(*shape: int) -> torch.Tensor:
    """Random numbers for a fractional pooling, the same at every call."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(11), dtype=torch.float64)


def adaptive(rank: int, size: Any) -> Call:
    pool = F.adaptive_max_pool2d if rank == 4 else F.adaptive_max_pool3d
    return lambda x: pool(x, size, return_indices=True)


def fractional(shape: tuple[int, ...], kernel: Any, size: Any) -> Call:
    pool = F.fractional_max_pool2d if len(shape) == 4 else F.fractional_max_pool3d
    drawn = numbers(*shape[:2], len(shape) - 2)
    samples = {dtype: drawn.to(dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
    return lambda x: pool(x, kernel, size, return_indices=True, _random_samples=samples[x.dtype])


IMAGE, VOLUME, WIDE = (2, 5, 7, 9), (2, 6, 5, 7, 8), (1, 70, 6, 9)
ADAPTIVE = [
    Sample("2-D, uneven", adaptive(4, (3, 4)), (IMAGE,)),
    Sample("2-D, global", adaptive(4, 1), (IMAGE,)),
    Sample("2-D, more than there are", adaptive(4, (9, 11)), (IMAGE,)),
    Sample("2-D, wide", adaptive(4, 2), (WIDE,)),
    Sample("3-D, uneven", adaptive(5, (2, 3, 5)), (VOLUME,)),
    Sample("3-D, global", adaptive(5, 1), (VOLUME,)),
]
FRACTIONAL = [
    Sample("2-D", fractional(IMAGE, 2, (4, 5)), (IMAGE,)),
    Sample("2-D, one column", fractional(IMAGE, (3, 2), (4, 1)), (IMAGE,)),
    Sample("2-D, filled exactly", fractional(IMAGE, 2, (6, 8)), (IMAGE,)),
    Sample("2-D, wide", fractional(WIDE, (2, 3), (4, 5)), (WIDE,)),
    Sample("3-D", fractional(VOLUME, (2, 3, 2), (2, 4, 6)), (VOLUME,)),
]
ALL = {"adaptive_max_pool": ADAPTIVE, "fractional_max_pool": FRACTIONAL}
CASES = [pytest.param(kernel, each, id=f"{kernel}, {each}") for kernel, samples in ALL.items() for each in samples]
every = pytest.mark.parametrize(("kernel", "sample"), CASES)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)


def values_only(sample: Sample) -> Sample:
    return replace(sample, call=lambda x: sample.call(x)[0])


@keeps(
    *(asked(kernel, samples, "channels last", dtypes=DTYPES) for kernel, samples in ALL.items()),
    *(asked(kernel, samples, "no copies", "steps aside", "odd layouts") for kernel, samples in ALL.items()),
    *(asked(kernel, list(map(values_only, samples)), "derivatives") for kernel, samples in ALL.items()),
)
def test_they_keep_to(check: Callable[[], None]) -> None:
    check()


@every
@every_dtype
def test_values_and_indices_are_the_originals_to_the_bit(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    (image,) = sample.operands(dtype)
    image = image.detach()
    wanted = sample.call(image.contiguous())
    with nhwc.kernels.use(kernel):
        found = sample.call(image)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
        assert one.dtype == torch.int64 or conformance.is_canonical(one)


@every
@every_dtype
def test_gradients_are_the_originals(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    (image,) = sample.operands(dtype)
    plain = image.detach().contiguous().requires_grad_()
    _, (wanted,) = conformance.run(sample, [plain], "contiguous")
    exact = [plain.detach().double().requires_grad_()]
    _, (right,) = conformance.run(sample, exact, "contiguous")
    with nhwc.kernels.use(kernel):
        _, (found,) = conformance.run(sample, [image], "channels_last")
    assert found is not None
    assert wanted is not None
    assert right is not None
    eps = torch.finfo(dtype).eps * float(right.abs().max())
    assert conformance.error(found, right) <= 2 * conformance.error(wanted, right) + eps


@every
@every_dtype
def test_ties_nan_and_infinity_choose_as_torch_does(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(5)
    few = torch.tensor([-torch.inf, 0.0, -0.0, 1.0, torch.nan, torch.inf], dtype=dtype)
    for values in (few, few[:4], few[:1], few[-2:]):
        image = values[torch.randint(len(values), sample.shapes[0], generator=random)]
        wanted = sample.call(image)
        with nhwc.kernels.use(kernel):
            found = sample.call(conformance.canonical(image))
        assert torch.equal(found[1], wanted[1])
        assert torch.equal(found[0].isnan(), wanted[0].isnan())
        assert torch.equal(found[0].nan_to_num(7.0), wanted[0].nan_to_num(7.0))


def test_odd_shapes_answer_alike() -> None:
    volumes = [(2, 1, 4, 4, 4), (2, 3, 2, 2, 2), (0, 3, 4, 4, 4), (2, 0, 4, 4, 4), (1, 1, 2, 2, 2), (2, 3, 1, 1, 1)]
    images = [each[:-1] for each in volumes]
    for size in (0, 1, 3):
        conformance.check_shapes("adaptive_max_pool", adaptive(5, size), volumes)
        conformance.check_shapes("adaptive_max_pool", adaptive(4, size), images)
    for shape in volumes:
        for kernel, size in ((1, 1), (2, 1), (1, 2)):
            conformance.check_shapes("fractional_max_pool", fractional(shape, kernel, size), [shape])
            conformance.check_shapes("fractional_max_pool", fractional(shape[:-1], kernel, size), [shape[:-1]])


def refused() -> dict[str, Callable[[], Any]]:
    image, volume = (conformance.canonical(torch.randn(shape)) for shape in (IMAGE, VOLUME))
    two, three = numbers(2, 5, 2).float(), numbers(2, 6, 3).float()
    pool2d, pool3d = torch.ops.aten.fractional_max_pool2d, torch.ops.aten.fractional_max_pool3d
    return {
        "too many windows": lambda: pool2d(image, [2, 2], [9, 9], two),
        "3-D windows that fill the input": lambda: pool3d(volume, [2, 2, 2], [4, 6, 7], three),
        "numbers of another type": lambda: pool2d(image, [2, 2], [3, 3], two.double()),
        "numbers for other channels": lambda: pool2d(image, [2, 2], [3, 3], two[:, :4]),
        "negative size": lambda: F.adaptive_max_pool2d(image, -1),
        "one size in 3-D": lambda: torch.ops.aten.adaptive_max_pool3d(volume, [2, 2]),
    }


@pytest.mark.parametrize("case", refused())
@pytest.mark.parametrize("kernel", ["adaptive_max_pool", "fractional_max_pool"])
def test_bad_arguments_are_refused_in_the_originals_words(kernel: str, case: str) -> None:
    conformance.check_error(kernel, refused()[case])


def test_a_backward_with_places_outside_the_input_writes_nowhere_else() -> None:
    image = conformance.canonical(torch.randn(1, 4, 4, 4))
    grad = conformance.canonical(torch.randn(1, 4, 2, 2))
    from nhwc.kernels.pool_places import gathered, scattered

    for place in (-1, 16):
        places = torch.full((1, 4, 2, 2), place)
        assert scattered(grad, places, (4, 4), adds=True) is NotImplemented
        assert gathered(image, places) is NotImplemented


@pytest.mark.parametrize("sizes", [(64, 80), (3, 5)])
def test_places_in_any_order_and_several_times_add_up(sizes: tuple[int, int]) -> None:
    from nhwc.kernels.pool_places import scattered

    random = torch.Generator().manual_seed(2)
    places = torch.randint(sizes[0] * sizes[1], (3, 7, 31, 17), generator=random)
    values = torch.randn(places.shape, generator=random, dtype=torch.float64)
    wanted = torch.zeros(3, 7, sizes[0] * sizes[1], dtype=torch.float64)
    wanted.scatter_add_(2, places.flatten(2), values.flatten(2))
    found = scattered(conformance.canonical(values), conformance.canonical(places), sizes, adds=True)
    torch.testing.assert_close(found, wanted.view(3, 7, *sizes))
