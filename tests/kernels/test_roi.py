"""torchvision's roi_align: both alignments, fixed and adaptive samples, regions inside and outside the image."""

import itertools
from collections.abc import Callable

import pytest
import torch
from kernels import conformance
from kernels.conformance import Sample
from kernels.requirements import asked, keeps

pytest.importorskip("torchvision", reason="it brings the operator")
from torchvision.ops import roi_align

KERNEL = "roi_align"
#: torchvision has no kernel for bfloat16 on the CPU.
DTYPES = (torch.float32, torch.float64, torch.float16)

#: Picture, x1, y1, x2, y2 in quarters, which every dtype holds. The last lies partly outside, the third wholly.
REGIONS = [
    [1.0, 0.75, 1.25, 9.5, 11.0],
    [0.0, 2.25, 0.25, 6.0, 3.75],
    [0.0, 30.0, 40.0, 34.0, 44.25],
    [1.0, -5.25, -3.5, 21.0, 6.25],
]
#: Ends before it starts: a negative number of adaptive samples where aligned.
BACKWARDS = [0.0, 7.0, 6.0, 2.5, 1.0]


def regions(rows: list[list[float]]) -> Callable[[torch.Generator], torch.Tensor]:
    return lambda _random: torch.tensor(rows, dtype=torch.float64)


def sample(aligned: bool, ratio: int, channels: int = 17, rows: list[list[float]] | None = None) -> Sample:
    rows = REGIONS if rows is None else rows
    shapes = (2, channels, 7, 6), (len(rows), 5)

    def call(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return roi_align(x, boxes, (3, 2), spatial_scale=0.5, sampling_ratio=ratio, aligned=aligned)

    return Sample(f"{aligned}-{ratio}-{channels}-{len(rows)}", call, shapes, {1: regions(rows)})


SAMPLES = [sample(aligned, ratio) for aligned, ratio in itertools.product((False, True), (-1, 0, 1, 2, 3))]
SAMPLES += [sample(True, 2, rows=[*REGIONS, BACKWARDS]), sample(False, 0, rows=[*REGIONS, BACKWARDS])]
FEW = [sample(False, 0, 40), sample(True, 2, 70)]
few = pytest.mark.parametrize("sample", FEW, ids=str)
#: Of the first picture alone: one of the odd layouts has no other, and torchvision would read beyond it.
OF_THE_FIRST = [sample(aligned, 0, rows=[[0.0, *row[1:]] for row in REGIONS]) for aligned in (False, True)]


@keeps(
    asked(KERNEL, SAMPLES, "channels last", "accuracy", dtypes=DTYPES),
    asked(KERNEL, FEW, "no copies", dtypes=DTYPES),
    asked(KERNEL, SAMPLES, "derivatives", "steps aside"),
    asked(KERNEL, OF_THE_FIRST, "odd layouts"),
)
def test_it_keeps_to(check: Callable[[], None]) -> None:
    check()


@few
def test_a_second_derivative_is_refused_in_torchvisions_words(sample: Sample) -> None:
    def step() -> torch.Tensor:
        image, boxes = sample.operands(torch.float64)
        (grad,) = torch.autograd.grad(sample.call(image, boxes).square().sum(), image, create_graph=True)
        return torch.autograd.grad(grad.sum(), image)[0]

    conformance.check_error(KERNEL, step)


@few
def test_a_gradient_that_stays_differentiable_has_the_same_values(sample: Sample) -> None:
    def step() -> torch.Tensor:
        image, boxes = sample.operands(torch.float64)
        return torch.autograd.grad(sample.call(image, boxes).square().sum(), image, create_graph=True)[0].detach()

    conformance.compare_calls(KERNEL, step, "create_graph")


def test_empty_and_small_inputs() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return roi_align(x, torch.tensor([[0.0, 0.0, 0.5, 3.0, 2.0]], dtype=x.dtype), 2)

    conformance.check_shapes(KERNEL, call, [(2, 1, 4, 4), (2, 3, 4, 4), (2, 16, 1, 1), (1, 1, 1, 1), (2, 0, 4, 4)])


def test_no_regions_give_what_torchvision_gives() -> None:
    image = conformance.canonical(torch.randn(2, 16, 4, 4)).requires_grad_()

    def step() -> tuple[torch.Tensor, ...]:
        result = roi_align(image, torch.empty(0, 5), 2)
        return (result.detach(), *torch.autograd.grad(result.sum(), image))

    conformance.compare_calls(KERNEL, step, "no regions")


def test_samples_exactly_at_the_edges_count_as_torchvisions_do() -> None:
    for dtype, scale in itertools.product((torch.float32, torch.float64), (1.0, 0.1, 1 / 3, 0.7)):
        image = conformance.canonical(torch.ones(1, 16, 8, 8, dtype=dtype))
        ends = torch.arange(-12, 13, dtype=dtype) / torch.tensor(scale, dtype=dtype)
        boxes = torch.stack([torch.zeros_like(ends), ends, ends, ends + 9, ends.abs() + 9], 1)
        for ratio, aligned in itertools.product((1, 2, 5), (False, True)):
            conformance.compare_calls(
                KERNEL,
                lambda i=image, b=boxes, s=scale, r=ratio, a=aligned: roi_align(i, b, 7, s, r, a),
                f"{dtype} {scale} {ratio} {aligned}",
            )


def test_regions_in_any_layout() -> None:
    image = conformance.canonical(torch.randn(2, 16, 7, 6, dtype=torch.float64))
    rows = torch.tensor(REGIONS, dtype=torch.float64)
    wide = torch.cat([rows, rows], 1)
    for boxes in (wide[:, :5], rows.t().contiguous().t(), rows[:1].expand(3, 5), rows[::2]):
        conformance.compare_calls(KERNEL, lambda boxes=boxes: roi_align(image, boxes, 3), str(boxes.stride()))


def test_what_is_no_plain_region_is_torchvisions() -> None:
    image = conformance.canonical(torch.randn(2, 16, 7, 6, dtype=torch.float64))
    for row in ([0.0, 1e5, 1e5, 2e5, 2e5], BACKWARDS, [0.5, 1.0, 1.0, 4.0, 4.0]):
        boxes = torch.tensor([REGIONS[0], row], dtype=torch.float64)
        for aligned in (False, True):
            conformance.compare_calls(
                KERNEL,
                lambda boxes=boxes, aligned=aligned: roi_align(image, boxes, 2, sampling_ratio=2, aligned=aligned),
                str(row),
            )


def test_bad_input_is_refused_in_torchvisions_words() -> None:
    image = conformance.canonical(torch.randn(2, 16, 4, 4))
    rows = torch.tensor(REGIONS)
    for picture, boxes in ((image, rows.double()), (image, rows[:, :4]), (image.bfloat16(), rows.bfloat16())):
        conformance.check_error(
            KERNEL, lambda x=picture, b=boxes: torch.ops.torchvision.roi_align(x, b, 1.0, 2, 2, 2, True)
        )


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own, in its 2.11
def test_compiled_code_gets_the_strides_that_it_was_promised() -> None:
    image, boxes = FEW[1].operands(torch.float32)

    def step(x: torch.Tensor) -> torch.Tensor:
        return FEW[1].call(x, boxes).square().sum()

    (wanted,) = torch.autograd.grad(step(image), image)
    with conformance.switched(KERNEL):
        (found,) = torch.autograd.grad(torch.compile(step)(image), image)
    torch.testing.assert_close(found, wanted)


@few
def test_autocast_keeps_the_format(sample: Sample) -> None:
    image, boxes = sample.operands(torch.bfloat16)
    with conformance.switched(KERNEL), torch.autocast("cpu", torch.bfloat16):
        result = sample.call(image, boxes)
    assert result.dtype == torch.bfloat16
    assert conformance.is_canonical(result)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@few
def test_the_number_of_threads_changes_nothing(sample: Sample, dtype: torch.dtype) -> None:
    def step() -> list[torch.Tensor]:
        image, boxes = sample.operands(dtype)
        result = sample.call(image, boxes)
        return [result, *torch.autograd.grad(result, image, conformance.gradient_for(result, "contiguous"))]

    conformance.check_threads(KERNEL, step)
