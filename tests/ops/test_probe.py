"""The probe against operators whose behaviour is known, because they are made up here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from nhwc.api.surveying_child import ProfilerWatch
from nhwc.model import InnerCopy
from nhwc.operators import Handling, Mode, OperatorRow, Truth
from nhwc.ops.case import Case
from nhwc.ops.instruments import Instruments
from nhwc.ops.probe import probe
from nhwc.report.ops.rows import why_text

SHAPE = (2, 8, 6, 5)


@dataclass
class MadeUp:
    run: Callable[..., Any]
    arguments: Callable[[Sequence[int]], tuple[torch.Tensor, ...]]
    name: str = "made up"
    group: str = "operator"
    is_comparable: bool = True

    def cases(self, dims: int, dtype: torch.dtype, device: str) -> list[Case]:
        return [Case(self.run, self.arguments(SHAPE))] if dims == 2 else []

    def edges(self, cases: Sequence[Case], dims: int) -> Iterator[tuple[str, Case]]:
        yield "one channel", Case(self.run, self.arguments((2, 1, 6, 5)))
        yield "empty batch", Case(self.run, self.arguments((0, 8, 6, 5)))

    def large(self, cases: Sequence[Case], dims: int) -> Case | None:
        return cases[0]


def one(shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    return (torch.randn(shape, requires_grad=True),)


def looked_at(run: Callable[..., Any], arguments: Callable[..., Any] = one, **changes: Any) -> OperatorRow:
    row = probe(
        MadeUp(run, arguments, **changes),
        2,
        torch.float32,
        "cpu",
        Instruments(lambda: ProfilerWatch("cpu")),
    )
    assert row is not None
    return row


class ContiguousGradient(torch.autograd.Function):
    """Keeps the format forward, loses it backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return (gradients[0] * 2.0).contiguous()


def test_a_pointwise_operator_keeps_the_format_forward_and_backward() -> None:
    row = looked_at(lambda x: x * x)
    assert [each.handling for _, each in row.passes] == [Handling.KEEPS] * 3
    assert (row.truth, row.edges, row.wrong_edges) == (Truth.RIGHT, ("one channel", "empty batch"), ())
    assert row.is_problem is False


def test_an_operator_that_answers_contiguous_loses_the_format() -> None:
    row = looked_at(lambda x: (x * 2.0).contiguous())
    assert row.forward.handling == Handling.LOSES
    assert row.forward.example == "(2, 8, 6, 5): (2, 8, 6, 5) with strides (240, 30, 5, 1)"
    assert row.forward.copied_bytes == 2 * 8 * 6 * 5 * 4
    assert row.forward.contiguous_copied_bytes == 0
    assert row.is_problem


def test_there_and_back_is_a_copy_inside() -> None:
    row = looked_at(lambda x: x.contiguous().contiguous(memory_format=torch.channels_last))
    # contiguous inputs are brought to channels last too: one copy where channels last makes two
    assert row.forward.handling == Handling.COPIES
    assert row.forward.copied_bytes == 2 * row.forward.contiguous_copied_bytes > 0
    assert row.forward.copiers


def test_a_gradient_made_of_an_expanded_one_alone_is_contiguous() -> None:
    row = looked_at(lambda x: x * 2.0)
    assert row.backward is not None
    assert row.expanded is not None
    assert (row.backward.handling, row.expanded.handling) == (Handling.KEEPS, Handling.LOSES)


def test_a_gradient_in_contiguous_is_seen() -> None:
    row = looked_at(ContiguousGradient.apply)
    assert row.backward is not None
    assert (row.forward.handling, row.backward.handling) == (Handling.KEEPS, Handling.LOSES)


def test_views_are_no_loss() -> None:
    assert looked_at(lambda x: x.permute(0, 2, 3, 1)).forward.handling == Handling.VIEW
    assert looked_at(lambda x: x[:, ::2]).forward.handling == Handling.VIEW


def test_a_result_of_another_rank_has_no_format() -> None:
    assert looked_at(lambda x: x.sum()).forward.handling == Handling.NO_FORMAT


def test_an_operator_that_raises_in_channels_last_refuses() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 30) * 1.0

    row = looked_at(run)
    assert row.forward.handling == Handling.REFUSES
    assert "view size is not compatible" in row.forward.example


def test_wrong_values_in_channels_last_alone_are_wrong() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, x.shape, (240, 30, 5, 1)) * 1.0

    row = looked_at(run)
    assert row.truth == Truth.WRONG
    assert row.error is not None
    assert row.error > 0.1
    fault = row.faults[0]
    assert (fault.what, fault.sample, fault.edge, fault.reference) == ("output", "(2, 8, 6, 5)", "", "float64")
    assert max(each.error or 0.0 for each in row.faults) == row.error
    assert "wrong output for (2, 8, 6, 5): error " in why_text(row)


class WrongGradient(torch.autograd.Function):
    """Twice the gradient, where the incoming one is in channels last."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        is_last = gradients[0].stride(1) == 1 and gradients[0].shape[1] > 1
        return gradients[0] * (2.0 if is_last else 1.0)


def test_a_wrong_gradient_is_told_from_a_wrong_output() -> None:
    row = looked_at(WrongGradient.apply)
    (fault,) = row.faults
    assert (row.truth, fault.what, fault.sample) == (Truth.WRONG, "gradient", "(2, 8, 6, 5)")
    assert fault.error == pytest.approx(1.0)
    assert fault.contiguous_error is not None
    assert fault.contiguous_error < 1e-6
    assert why_text(row).startswith(
        "wrong gradient for (2, 8, 6, 5): error 1 of the largest value against float64, where contiguous has "
    )


def test_wrong_values_for_one_shape_alone_are_named() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        # with one channel both formats have the same strides, so that only canonical ones tell them apart
        return x + (1.0 if x.shape[1] == 1 and x.stride(1) == 1 else 0.0)

    row = looked_at(run)
    assert (row.truth, row.wrong_edges) == (Truth.RIGHT, ("one channel",))
    (fault,) = row.faults
    assert (fault.what, fault.sample, fault.edge) == ("output", "(2, 1, 6, 5)", "one channel")
    assert "wrong output for (2, 1, 6, 5), one channel: error " in why_text(row)


def test_an_edge_that_is_refused_says_what_it_raised() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 1 and x.stride(1) == 1:
            raise ValueError("no single channel")
        return x * 1.0

    (fault,) = looked_at(run).faults
    assert (fault.edge, fault.raised) == ("one channel", "ValueError: no single channel")


def test_random_numbers_are_not_called_wrong() -> None:
    assert looked_at(lambda x: torch.nn.functional.dropout(x, 0.5)).truth == Truth.RANDOM

    def seeded(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(42)
            return torch.nn.functional.dropout(x, 0.5)

    assert looked_at(seeded).truth == Truth.RANDOM


def test_memory_that_is_not_initialised_is_not_compared() -> None:
    row = looked_at(torch.empty_like, is_comparable=False)
    assert (row.truth, row.edges) == (Truth.UNCOMPARED, ())


def test_an_operator_that_raises_on_contiguous_inputs_has_no_row() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("never")

    assert probe(MadeUp(run, one), 2, torch.float32, "cpu", Instruments(lambda: NoWatch())) is None
    assert probe(MadeUp(torch.relu, one), 3, torch.float32, "cpu", Instruments(lambda: NoWatch())) is None


class NoWatch:
    def running(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def mark(self, index: int) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def copies(self, index: int) -> Sequence[InnerCopy]:
        return ()


@pytest.mark.slow
def test_compiled_code_is_looked_at_as_well() -> None:
    row = probe(MadeUp(lambda x: x * 2.0, one), 2, torch.float32, "cpu", Instruments(NoWatch), Mode.COMPILED)
    assert row is not None
    assert (row.mode, row.forward.handling, row.truth) == ("compiled", Handling.KEEPS, Truth.RIGHT)
