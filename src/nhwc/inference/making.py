"""Makes an engine: captures the model for each set of shapes, chooses algorithms, and compares with float64."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.engine_report import Accuracy, worst
from nhwc.errors import EngineError
from nhwc.inference import narrowing
from nhwc.inference.buckets import resized, sizes_to_build
from nhwc.inference.callers import stack_level
from nhwc.inference.capture import Captured
from nhwc.inference.choosing import Chooser
from nhwc.inference.contents import Contents, Origin
from nhwc.inference.graph import Graph
from nhwc.inference.measurements import Measurements
from nhwc.inference.module import Engine
from nhwc.inference.numerics import agrees, settle
from nhwc.inference.reasons import floating_dtypes
from nhwc.inference.remembering import Accuracies, Captures
from nhwc.inference.requirements import require_example, require_further, suitable
from nhwc.inference.signature_text import dtype_text
from nhwc.inference.specialization import Specialization
from nhwc.kept_times import folder
from nhwc.progress import Progress


@dataclass(frozen=True)
class Wishes:
    """exact: no algorithm that changes the rounding of single products. budget_s: for timing algorithms. threads: how
    many it is tuned for, by default as many as torch has. shapes: further example arguments, a sequence for each.
    batches: batch sizes besides the example's. weights: a type of 16 bits in which linear layers may keep theirs where
    that is faster. Raises EngineError for what makes no sense.
    """

    exact: bool = False
    budget_s: float = 15.0
    threads: int | None = None
    shapes: Sequence[Sequence[Any]] = ()
    batches: Sequence[int] = ()
    weights: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.weights not in (None, torch.float32, *narrowing.ROUNDING):
            raise EngineError(f"weights={self.weights!r}: give torch.bfloat16 or torch.float16, or None for float32")
        if self.exact and self.narrow is not None:
            raise EngineError(f"exact=True keeps float32 weights, and weights={self.weights} rounds them; give one")
        if isinstance(self.batches, int) or not all(type(each) is int and each > 0 for each in self.batches):
            raise EngineError(f"batches={self.batches!r}: give a list of whole numbers above 0, such as batches=[1, 8]")
        if not _is_seconds(self.budget_s):
            raise EngineError(f"budget_s={self.budget_s!r}: give seconds, 0 or more")
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise EngineError(f"threads={self.threads!r}: give 1 or more, or None for as many as torch has")

    @property
    def narrow(self) -> torch.dtype | None:
        """``weights`` where it is narrower than float32."""
        return None if self.weights is torch.float32 else self.weights


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 0


def contents_for(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    wishes: Wishes,
    target: str,
    origin: Origin,
    progress: Progress,
) -> Contents:
    """What an engine of the model runs. Raises EngineError for a model that cannot be captured."""
    model = suitable(model, Engine)
    require_example(args, kwargs)
    make = _Making(model, wishes, origin, progress)
    asked = [(each, kwargs) for each in (tuple(args), *require_further(wishes.shapes))]
    try:
        made = tuple(make.built(*each) for each in asked)
        _warn_of_slow_dtypes(model)
        filled_up = [resized((args, kwargs), batch) for batch in sizes_to_build((args, kwargs), wishes.batches)]
        buckets = tuple(make.built(*each) for each in filled_up)
        errors = [make.settled(one, *each) for one, each in zip((*made, *buckets), (*asked, *filled_up), strict=True)]
    finally:
        make.chooser.measured.save()  # what was measured until a failure or an interrupt spares the next build
    return Contents(made, buckets, worst(errors), target or type(model).__name__, origin)


class _Making:
    """One model on its way to an engine, for each set of shapes, with what is kept of earlier ones."""

    def __init__(self, model: torch.nn.Module, wishes: Wishes, origin: Origin, progress: Progress) -> None:
        self.model, self.wishes, self.progress = model, wishes, progress
        self.instruction_set = origin.instruction_set
        self.threads = wishes.threads or torch.get_num_threads()
        self.chooser = chooser_for(origin.processor, wishes.budget_s)
        self.captures, self.accuracies = Captures(folder()), Accuracies(folder())

    def built(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Specialization:
        """Ready for these shapes; captured anew where what was kept computes something else."""
        made = self._ready(args, kwargs)
        if self.captures.is_from_file(made.captured) and not agrees(made, self.model, args, kwargs, self.threads):
            self.captures.forget(made.captured)
            return self._ready(args, kwargs)
        return made

    def settled(self, made: Specialization, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Accuracy:
        """Its error, brought within the bound; measured, or known of the same weights and algorithms."""
        captured = self.captures.key_of(made.captured)
        key = self.accuracies.key_of(made, captured, self.threads, self.instruction_set)
        found = self.accuracies.get(key)
        if found is None:
            found = settle(made, self.model, args, kwargs, self.threads, self.progress)
            self.accuracies.put(key, found)
        return found

    def _ready(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Specialization:
        exact, progress = self.wishes.exact, self.progress
        made = Specialization(self.model, args, kwargs, self.chooser, exact, progress, self._graph_of)
        made.ready(self.threads)
        return made

    def _graph_of(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Captured, Graph]:
        captured, graph = self.captures.graph_of(model, args, kwargs)
        narrowing.allow(graph, self.wishes.narrow)
        return captured, graph


def _warn_of_slow_dtypes(model: torch.nn.Module) -> None:
    dtypes = floating_dtypes(list(model.parameters()))
    if dtypes and torch.float32 not in dtypes:
        warnings.warn(
            f"the model's weights are {' and '.join(sorted(map(dtype_text, dtypes)))}, and compiled steps take float32 "
            "alone, so that torch runs what computes with them: build the engine from model.float(), with a float32 "
            "example",
            RuntimeWarning,
            stacklevel=stack_level(),
        )


def chooser_for(processor: str, budget_s: float) -> Chooser:
    """A chooser that knows what earlier engines measured on this machine."""
    return Chooser(Measurements(processor, folder()), budget_s)
