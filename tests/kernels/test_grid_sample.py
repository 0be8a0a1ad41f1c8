"""grid_sample in every mode, padding and alignment, 2-D and 3-D."""

import itertools
from collections.abc import Callable

import pytest
import torch
from kernels import conformance
from kernels.conformance import DTYPES, Sample
from kernels.requirements import asked, keeps
from torch.nn import functional

KERNEL = "grid_sample"
MODES = [(4, "bilinear"), (4, "nearest"), (4, "bicubic"), (5, "bilinear"), (5, "nearest")]


def grid_of(shape: tuple[int, ...]) -> Callable[[torch.Generator], torch.Tensor]:
    """Points up to a quarter outside the image, which bfloat16 holds exactly: every dtype sees the same."""

    def make(random: torch.Generator) -> torch.Tensor:
        return (torch.rand(shape, generator=random, dtype=torch.float64) * 2.5 - 1.25).to(torch.bfloat16).double()

    return make


def sample(rank: int, mode: str, padding: str, align: bool, channels: int = 17) -> Sample:
    image = (2, channels, 6, 5) if rank == 4 else (2, channels, 4, 6, 5)
    grid = (2, 4, 3, 2) if rank == 4 else (2, 2, 4, 3, 3)

    def call(x: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(x, points, mode=mode, padding_mode=padding, align_corners=align)

    return Sample(f"{rank - 2}d-{mode}-{padding}-{align}", call, (image, grid), {1: grid_of(grid)})


SAMPLES = [
    sample(rank, mode, padding, align)
    for (rank, mode), padding, align in itertools.product(MODES, ("zeros", "border", "reflection"), (False, True))
]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)
FEW = [sample(4, "bilinear", "zeros", False, 40), sample(5, "bilinear", "border", True, 40)]


@keeps(
    asked(KERNEL, SAMPLES, "channels last", "accuracy", dtypes=DTYPES),
    asked(KERNEL, FEW, "no copies", dtypes=DTYPES),
    asked(KERNEL, SAMPLES, "steps aside", "odd layouts"),
)
def test_it_keeps_to(check: Callable[[], None]) -> None:
    check()


@every
def test_its_gradients_by_both_operands_are_torchs(sample: Sample) -> None:
    def step() -> tuple[torch.Tensor, ...]:
        image, points = (each.detach().requires_grad_() for each in sample.operands(torch.float64))
        result = sample.call(image, points)
        gradient = conformance.gradient_for(result, "channels_last")
        return (result, *torch.autograd.grad(result, (image, points), gradient))

    conformance.compare_calls(KERNEL, step, "gradients")


@pytest.mark.parametrize("sample", [*FEW, sample(4, "bicubic", "reflection", False)], ids=str)
def test_the_derivative_by_the_grid_is_that_of_the_function(sample: Sample) -> None:
    image, points = (each.detach().requires_grad_() for each in sample.operands(torch.float64))
    with conformance.switched(KERNEL):
        assert torch.autograd.gradcheck(sample.call, (image, points + 0.013), fast_mode=True)


def test_empty_and_small_inputs() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        points = torch.linspace(-1.2, 1.2, 12, dtype=x.dtype).view(1, 2, 3, 2).expand(x.shape[0], 2, 3, 2)
        return functional.grid_sample(x, points, align_corners=False)

    conformance.check_shapes(
        KERNEL, call, [(0, 16, 4, 4), (2, 1, 4, 4), (2, 3, 4, 4), (2, 16, 1, 1), (1, 1, 1, 1), (2, 0, 4, 4)]
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("rank", "mode"), MODES)
def test_coordinates_that_are_no_numbers(rank: int, mode: str, padding: str) -> None:
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.1], dtype=torch.float64)
    grid = torch.cartesian_prod(*[values] * (rank - 2)).view(1, 6, -1, *[1] * (rank - 4), rank - 2)
    image = conformance.canonical(torch.randn((1, 16, 3, 4) if rank == 4 else (1, 16, 3, 4, 2), dtype=torch.float64))
    conformance.compare_calls(
        KERNEL, lambda: functional.grid_sample(image, grid, mode, padding, align_corners=False), padding
    )


def test_a_grid_in_any_layout() -> None:
    image = conformance.canonical(torch.randn(2, 16, 5, 6, dtype=torch.float64))
    points = torch.rand(2, 4, 6, 4, dtype=torch.float64) * 2 - 1
    for grid in (
        points[..., ::2],
        points[:, :, ::2, :2],
        points[..., :2].transpose(1, 2),
        points[:1, :, :, 1:3].expand(2, 4, 6, 2),
    ):
        conformance.compare_calls(KERNEL, lambda grid=grid: functional.grid_sample(image, grid, align_corners=True), "")


def test_bad_input_is_refused_in_torchs_words() -> None:
    image = conformance.canonical(torch.randn(2, 3, 4, 4))
    for grid in (torch.randn(1, 2, 2, 2), torch.randn(2, 2, 2, 3), torch.randn(2, 2, 2, 2, dtype=torch.float64)):
        conformance.check_error(KERNEL, lambda grid=grid: functional.grid_sample(image, grid, align_corners=False))


def test_the_number_of_threads_changes_nothing() -> None:
    def step() -> list[torch.Tensor]:
        image, points = (each.detach().requires_grad_() for each in FEW[0].operands(torch.float32))
        result = FEW[0].call(image, points)
        return [result, *torch.autograd.grad(result.sum(), (image, points))]

    conformance.check_threads(KERNEL, step)
