"""unfold and fold: windows of every kind, columns in either order, and the format of gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample, canonical

KERNEL = "unfold"
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16], ids=str)

WINDOWS = {
    "3x3": {"kernel_size": 3, "padding": 1},
    "2x3, every second": {"kernel_size": (2, 3), "stride": 2},
    "dilated": {"kernel_size": (3, 2), "dilation": (2, 1), "padding": (3, 1), "stride": (1, 2)},
    "patches": {"kernel_size": 2, "stride": 2},
    "gaps": {"kernel_size": 1, "stride": (2, 3)},
    "wide padding": {"kernel_size": 2, "padding": (4, 5), "stride": 3},
}
SIZE = (7, 9)


def unfold(name: str, channels: int) -> Sample:
    return Sample(f"unfold {name} {channels}", lambda x: F.unfold(x, **WINDOWS[name]), ((2, channels, *SIZE),))


def fold(name: str, channels: int) -> Sample:
    """From (samples, places, values) rows, as a Linear layer leaves them."""
    columns = F.unfold(torch.empty(2, channels, *SIZE), **WINDOWS[name])
    return Sample(
        f"fold {name} {channels}",
        lambda rows: F.fold(rows.transpose(1, 2), SIZE, **WINDOWS[name]),
        (tuple(columns.transpose(1, 2).shape),),
    )


UNFOLDS = [unfold(name, channels) for name in WINDOWS for channels in (3, 37)]
FOLDS = [fold(name, channels) for name in WINDOWS for channels in (9, 37)]
every = pytest.mark.parametrize("sample", [*UNFOLDS, *FOLDS], ids=str)


@dtypes
@every
def test_all_it_returns_is_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout(KERNEL, sample, dtype)


@dtypes
@every
def test_it_is_as_exact_as_torch(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(KERNEL, sample, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@every
def test_nothing_is_copied(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_no_copies(KERNEL, sample, dtype)


@every
def test_its_derivative_is_that_of_the_function(sample: Sample) -> None:
    conformance.check_derivatives(KERNEL, sample)


@pytest.mark.parametrize("sample", UNFOLDS, ids=str)
def test_contiguous_images_take_the_original(sample: Sample) -> None:
    conformance.check_steps_aside(KERNEL, sample, torch.float32)


@pytest.mark.parametrize("sample", UNFOLDS[:2], ids=str)
def test_odd_layouts(sample: Sample) -> None:
    conformance.check_odd_layouts(KERNEL, sample)


def test_empty_and_small_inputs() -> None:
    shapes = [(2, 1, 4, 4), (2, 3, 4, 4), (2, 16, 1, 1), (1, 1, 1, 1), (0, 3, 4, 4)]
    conformance.check_shapes(KERNEL, lambda x: F.unfold(x, 3, padding=1), shapes)


def test_columns_are_laid_out_as_torchs() -> None:
    image = canonical(torch.randn(2, 5, *SIZE))
    with conformance.switched(KERNEL):
        assert F.unfold(image, 3, padding=1).is_contiguous()


def test_a_round_trip_is_bit_for_bit_torchs() -> None:
    image = torch.randn(2, 20, *SIZE)
    columns = F.unfold(image, **WINDOWS["dilated"])
    by_place = columns.transpose(1, 2).contiguous().transpose(1, 2)
    wanted = F.fold(columns, SIZE, **WINDOWS["dilated"])
    with conformance.switched(KERNEL):
        assert torch.equal(F.unfold(canonical(image), **WINDOWS["dilated"]), columns)
        found = F.fold(by_place, SIZE, **WINDOWS["dilated"])
    assert torch.equal(found, wanted)
    assert conformance.is_canonical(found)


def test_fold_of_contiguous_columns_is_torchs() -> None:
    columns = torch.randn(2, 9 * 4, SIZE[0] * SIZE[1])
    wanted = F.fold(columns, SIZE, **WINDOWS["3x3"])
    with conformance.switched(KERNEL):
        found = F.fold(columns, SIZE, **WINDOWS["3x3"])
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()


def test_fold_to_few_channels_is_torchs() -> None:
    columns = torch.randn(2, SIZE[0] * SIZE[1], 9 * 3).transpose(1, 2)
    wanted = F.fold(columns, SIZE, **WINDOWS["3x3"])
    with conformance.switched(KERNEL):
        found = F.fold(columns, SIZE, **WINDOWS["3x3"])
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()


def test_fold_of_columns_in_odd_layouts() -> None:
    rows = torch.randn(2, 12, 81, dtype=torch.float64)
    for name, columns in {
        "a slice of places": torch.cat([rows, rows], 1)[:, :12].transpose(1, 2),
        "a slice of values": torch.cat([rows, rows], 2)[:, :, :81].transpose(1, 2),
        "one sample": rows[:1].transpose(1, 2),
        "expanded": rows[:1].transpose(1, 2).expand(2, 81, 12),
        "without a batch": rows[0].t(),
        "of one place": rows[:, :1].transpose(1, 2),
    }.items():
        size = (1, 1) if columns.shape[-1] == 1 else (3, 4)
        conformance.compare_calls(KERNEL, lambda c=columns, s=size: F.fold(c, s, 3, padding=1), name)


def test_a_gradient_in_the_order_of_places_is_not_copied() -> None:
    image = canonical(torch.randn(2, 9, *SIZE)).requires_grad_()
    grad = torch.randn(2, SIZE[0] * SIZE[1], 81).transpose(1, 2)
    (wanted,) = torch.autograd.grad(F.unfold(image, 3, padding=1), image, grad)
    with conformance.switched(KERNEL):
        (found,) = torch.autograd.grad(F.unfold(image, 3, padding=1), image, grad)
    assert torch.equal(found, wanted)
    assert conformance.is_canonical(found)


def test_bad_input_is_refused_in_torchs_words() -> None:
    image = canonical(torch.randn(2, 6, 4, 4))
    rows = torch.randn(2, 12, 81)
    for call in (
        lambda: F.unfold(image, 7),
        lambda: F.unfold(image, 3, stride=0),
        lambda: F.unfold(image, 3, padding=-1),
        lambda: F.unfold(image, 0),
        lambda: F.fold(rows.transpose(1, 2), (3, 5), 3, padding=1),
        lambda: F.fold(rows.transpose(1, 2), (3, 4), 5, padding=2),
    ):
        conformance.check_error(KERNEL, call)


@pytest.mark.parametrize("sample", [UNFOLDS[1], UNFOLDS[5], FOLDS[1]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_threads_changes_nothing(sample: Sample, dtype: torch.dtype) -> None:
    def step() -> list[torch.Tensor]:
        parts = conformance.run(sample, sample.operands(dtype), "contiguous")
        return [each for part in parts for each in part if each is not None]

    assert len(step()) == 2
    conformance.check_threads(KERNEL, step)


def test_compiled_code_gets_the_strides_that_it_was_promised() -> None:
    image = canonical(torch.randn(2, 6, *SIZE)).requires_grad_()

    def step(x: torch.Tensor) -> torch.Tensor:
        return F.unfold(x, 3, padding=1).square().sum()

    (wanted,) = torch.autograd.grad(step(image), image)
    with conformance.switched(KERNEL):
        (found,) = torch.autograd.grad(torch.compile(step)(image), image)
    torch.testing.assert_close(found, wanted)
