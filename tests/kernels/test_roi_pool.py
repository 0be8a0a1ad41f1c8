"""torchvision's roi_pool, ps_roi_align and ps_roi_pool: regions inside and outside the image, at its edges, none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernels import conformance
from kernels.conformance import Sample

pytest.importorskip("torchvision", reason="it brings the operators")
from torchvision import ops

#: Picture, x1, y1, x2, y2 in quarters, which every dtype holds. The last lies partly outside, the third wholly.
REGIONS = [
    [1.0, 0.75, 1.25, 9.5, 11.0],
    [0.0, 2.25, 0.25, 6.0, 3.75],
    [0.0, 30.0, 40.0, 34.0, 44.25],
    [1.0, -5.25, -3.5, 21.0, 6.25],
]
INSIDE = [[1.0, 1.25, 1.25, 9.5, 7.0], [0.0, 2.25, 1.25, 6.0, 3.75]]
#: Ends before it starts.
BACKWARDS = [0.0, 7.0, 6.0, 2.5, 1.0]
BINS = (3, 2)

single, double, half = torch.float32, torch.float64, torch.float16


def call_of(kernel: str, ratio: int = -1, scale: float = 0.5) -> Callable[..., torch.Tensor]:
    if kernel == "ps_roi_align":
        return lambda x, boxes: ops.ps_roi_align(x, boxes, BINS, scale, ratio)
    return lambda x, boxes: getattr(ops, kernel)(x, boxes, BINS, scale)


def sample(kernel: str, results: int = 5, ratio: int = -1, rows: list[list[float]] | None = None) -> Any:
    rows = REGIONS if rows is None else rows
    channels = results if kernel == "roi_pool" else results * BINS[0] * BINS[1]
    boxes = torch.tensor(rows, dtype=double)
    made = Sample(
        f"{results}-{ratio}-{len(rows)}",
        call_of(kernel, ratio),
        ((2, channels, 7, 6), (len(rows), 5)),
        {1: lambda _: boxes},
    )
    return pytest.param(kernel, made, id=f"{kernel}-{made}")


FEW = [sample(kernel, results) for kernel in ("roi_pool", "ps_roi_align", "ps_roi_pool") for results in (1, 41)]
EVERY = [
    *FEW,
    *(sample("ps_roi_align", 5, ratio) for ratio in (1, 2, 3)),
    *(sample(kernel, 9, rows=[*REGIONS, BACKWARDS]) for kernel in ("roi_pool", "ps_roi_pool")),
]
few = pytest.mark.parametrize(("kernel", "sample"), FEW)
every = pytest.mark.parametrize(("kernel", "sample"), EVERY)
kernels = pytest.mark.parametrize("kernel", ["roi_pool", "ps_roi_align", "ps_roi_pool"])
dtypes = pytest.mark.parametrize("dtype", [single, double, half], ids=str)


def skip_where_torchvision_has_none(kernel: str, dtype: torch.dtype) -> None:
    if dtype == half and kernel != "ps_roi_align":
        pytest.skip("torchvision has no such kernel")


@dtypes
@few
def test_all_it_returns_is_channels_last(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    skip_where_torchvision_has_none(kernel, dtype)
    conformance.check_layout(kernel, sample, dtype)


@dtypes
@every
def test_it_is_as_exact_as_torchvision(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    skip_where_torchvision_has_none(kernel, dtype)
    conformance.check_accuracy(kernel, sample, dtype)


@few
def test_nothing_is_copied(kernel: str, sample: Sample) -> None:
    conformance.check_no_copies(kernel, sample, single)


@pytest.mark.parametrize(
    ("kernel", "sample"), [sample(kernel, 7, rows=INSIDE) for kernel in ("roi_pool", "ps_roi_align", "ps_roi_pool")]
)
def test_its_derivative_is_that_of_the_function(kernel: str, sample: Sample) -> None:
    # regions inside the image: at its edge torchvision's ps_roi_pool is not the gradient of its forward
    conformance.check_derivatives(kernel, sample)


@few
def test_a_second_derivative_is_refused_in_torchvisions_words(kernel: str, sample: Sample) -> None:
    def step() -> torch.Tensor:
        image, boxes = sample.operands(double)
        (grad,) = torch.autograd.grad(sample.call(image, boxes).square().sum(), image, create_graph=True)
        return torch.autograd.grad(grad.sum(), image)[0]

    conformance.check_error(kernel, step)


@every
def test_values_and_gradients_are_torchvisions(kernel: str, sample: Sample) -> None:
    def step() -> tuple[torch.Tensor, ...]:
        image, boxes = sample.operands(single)
        result = sample.call(image, boxes)
        return result.detach(), *torch.autograd.grad(result, image, conformance.gradient_for(result, "contiguous"))

    conformance.compare_calls(kernel, step, str(sample))


@every
def test_contiguous_input_takes_the_original(kernel: str, sample: Sample) -> None:
    conformance.check_steps_aside(kernel, sample, single)


@kernels
def test_odd_layouts(kernel: str) -> None:
    # regions of the first picture alone: one of the layouts has no other, and torchvision would read beyond it
    first = [[0.0, *row[1:]] for row in REGIONS]
    conformance.check_odd_layouts(kernel, sample(kernel, rows=first).values[1])


@kernels
def test_empty_and_small_inputs(kernel: str) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return call_of(kernel)(x, torch.tensor([[0.0, 0.0, 0.5, 3.0, 2.0]], dtype=x.dtype))

    shapes = [(2, 6, 4, 4), (2, 12, 1, 1), (1, 6, 1, 1), (2, 0, 4, 4), (2, 1, 4, 4)]
    conformance.check_shapes(kernel, call, shapes)


@kernels
def test_no_regions_give_what_torchvision_gives(kernel: str) -> None:
    image = conformance.canonical(torch.randn(2, 12, 4, 4)).requires_grad_()

    def step() -> tuple[torch.Tensor, ...]:
        result = call_of(kernel)(image, torch.empty(0, 5))
        return (result.detach(), *torch.autograd.grad(result.sum(), image))

    conformance.compare_calls(kernel, step, "no regions")


@kernels
def test_corners_at_the_edges_and_between_pixels_are_torchvisions(kernel: str) -> None:
    for dtype, scale in itertools.product((single, double), (1.0, 0.1, 1 / 3, 0.7)):
        image = conformance.canonical(torch.randn(1, 12, 8, 8, dtype=dtype)).requires_grad_()
        ends = torch.arange(-12, 13, dtype=dtype) / 2 / torch.tensor(scale, dtype=dtype)
        boxes = torch.stack([torch.zeros_like(ends), ends, ends, ends + 9, ends.abs() + 9], 1)
        for ratio in (1, 2) if kernel == "ps_roi_align" else (1,):

            def step(i: Any = image, b: Any = boxes, r: int = ratio, s: float = scale) -> tuple[torch.Tensor, ...]:
                result = call_of(kernel, r, s)(i, b)
                return (result.detach(), *torch.autograd.grad(result, i, result.detach()))

            conformance.compare_calls(kernel, step, f"{dtype} {scale} {ratio}")


@kernels
def test_regions_in_any_layout(kernel: str) -> None:
    image = conformance.canonical(torch.randn(2, 12, 7, 6, dtype=double))
    rows = torch.tensor(REGIONS, dtype=double)
    wide = torch.cat([rows, rows], 1)
    for boxes in (wide[:, :5], rows.t().contiguous().t(), rows[:1].expand(3, 5), rows[::2]):
        conformance.compare_calls(kernel, lambda boxes=boxes: call_of(kernel)(image, boxes), str(boxes.stride()))


@kernels
def test_what_is_no_plain_region_is_torchvisions(kernel: str) -> None:
    image = conformance.canonical(torch.randn(2, 12, 7, 6, dtype=double))
    for row in ([0.0, 1e3, 1e3, 2e3, 2e3], BACKWARDS, [0.5, 1.0, 1.0, 4.0, 4.0], [0.0, 2.0, 2.0, 2.0, 2.0]):
        boxes = torch.tensor([REGIONS[0], row], dtype=double)
        conformance.compare_calls(kernel, lambda boxes=boxes: call_of(kernel)(image, boxes), str(row))


@kernels
def test_where_values_come_from_is_torchvisions_word_for_word(kernel: str) -> None:
    image = conformance.canonical(torch.randn(2, 12, 7, 6))
    image[0, :, 2, 1] = float("nan")
    if kernel == "roi_pool":
        image[1, 3] = -torch.inf
    rest = (0.5, *BINS, 2) if kernel == "ps_roi_align" else (0.5, *BINS)
    operator = getattr(torch.ops.torchvision, kernel)
    wanted = operator(image, torch.tensor(REGIONS), *rest)
    with conformance.switched(kernel):
        found = operator(image, torch.tensor(REGIONS), *rest)
    torch.testing.assert_close(found[0], wanted[0], equal_nan=True)
    assert torch.equal(found[1], wanted[1])
    # torchvision's backward reads them as contiguous, and it may be the one that runs
    assert found[1].is_contiguous()


@few
def test_a_kernel_that_is_switched_off_before_backward_leaves_it_to_torchvision(kernel: str, sample: Sample) -> None:
    def gradient(on: bool) -> torch.Tensor:
        image, boxes = sample.operands(single)
        with conformance.switched(kernel if on else None):
            result = sample.call(image, boxes)
        return torch.autograd.grad(result, image, conformance.gradient_for(result, "contiguous"))[0]

    torch.testing.assert_close(gradient(True), gradient(False))


@kernels
def test_bad_input_is_refused_in_torchvisions_words(kernel: str) -> None:
    image = conformance.canonical(torch.randn(2, 12, 4, 4))
    rows = torch.tensor(REGIONS)
    rest = (1.0, *BINS, 2) if kernel == "ps_roi_align" else (1.0, *BINS)
    operator = getattr(torch.ops.torchvision, kernel)
    for picture, boxes in ((image, rows.double()), (image.bfloat16(), rows.bfloat16())):
        conformance.check_error(kernel, lambda x=picture, b=boxes: operator(x, b, *rest))
    if kernel != "roi_pool":
        odd = conformance.canonical(torch.randn(2, 13, 4, 4))
        conformance.check_error(kernel, lambda: operator(odd, rows, *rest))


@few
def test_the_number_of_threads_changes_nothing(kernel: str, sample: Sample) -> None:
    def step() -> list[torch.Tensor]:
        image, boxes = sample.operands(single)
        result = sample.call(image, boxes)
        return [result, *torch.autograd.grad(result, image, conformance.gradient_for(result, "contiguous"))]

    conformance.check_threads(kernel, step)


@kernels
def test_compiled_code_gets_the_strides_that_it_was_promised(kernel: str) -> None:
    case = sample(kernel, 5).values[1]
    image, boxes = case.operands(single)

    def step(x: torch.Tensor) -> torch.Tensor:
        return case.call(x, boxes).square().sum()

    (wanted,) = torch.autograd.grad(step(image), image)
    with conformance.switched(kernel):
        (found,) = torch.autograd.grad(torch.compile(step)(image), image)
    torch.testing.assert_close(found, wanted)
