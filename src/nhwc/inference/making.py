"""Makes an engine: captures the model for each set of shapes, chooses algorithms, and compares with float64."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.engine_report import Accuracy, worst
from nhwc.errors import EngineError
from nhwc.inference.buckets import resized, sizes_to_build
from nhwc.inference.callers import stack_level
from nhwc.inference.choosing import Chooser
from nhwc.inference.contents import Contents, Origin
from nhwc.inference.measurements import Measurements, folder
from nhwc.inference.module import Engine
from nhwc.inference.numerics import agrees, settle
from nhwc.inference.reasons import floating_dtypes
from nhwc.inference.remembering import Accuracies, Captures
from nhwc.inference.requirements import require_example, require_further, suitable
from nhwc.inference.signature_text import dtype_text
from nhwc.inference.specialization import Capturing, Specialization
from nhwc.progress import Progress


@dataclass(frozen=True)
class Wishes:
    """exact: no algorithm that changes the rounding of single products. budget_s: for timing algorithms. threads: how
    many it is tuned for, by default as many as torch has. shapes: further example arguments, a sequence for each.
    batches: batch sizes besides the example's. Raises EngineError for what makes no sense.
    """

    exact: bool = False
    budget_s: float = 15.0
    threads: int | None = None
    shapes: Sequence[Sequence[Any]] = ()
    batches: Sequence[int] = ()

    def __post_init__(self) -> None:
        if isinstance(self.batches, int) or not all(type(each) is int and each > 0 for each in self.batches):
            raise EngineError(f"batches={self.batches!r}: give a list of whole numbers above 0, such as batches=[1, 8]")
        if not _is_seconds(self.budget_s):
            raise EngineError(f"budget_s={self.budget_s!r}: give seconds, 0 or more")
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise EngineError(f"threads={self.threads!r}: give 1 or more, or None for as many as torch has")


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
    further = require_further(wishes.shapes)
    chooser = chooser_for(origin.processor, wishes.budget_s)
    count = wishes.threads or torch.get_num_threads()

    captures = Captures(folder())

    def made_by(capturing: Capturing, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Specialization:
        made = Specialization(model, arguments, keywords, chooser, wishes.exact, progress, capturing)
        made.ready(count)
        return made

    def built(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Specialization:
        made = made_by(captures.graph_of, arguments, keywords)
        if captures.is_from_file(made.captured) and not agrees(made, model, arguments, keywords, count):
            captures.forget(made.captured)
            return made_by(captures.graph_of, arguments, keywords)
        return made

    accuracies = Accuracies(folder())

    def settled(made: Specialization, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Accuracy:
        key = accuracies.key_of(made, captures.key_of(made.captured), count, origin.instruction_set)
        found = accuracies.get(key)
        if found is None:
            found = settle(made, model, arguments, keywords, count, progress)
            accuracies.put(key, found)
        return found

    asked = [(each, kwargs) for each in (tuple(args), *further)]
    made = tuple(built(*each) for each in asked)
    _warn_of_slow_dtypes(model)
    filled_up = [resized((args, kwargs), batch) for batch in sizes_to_build((args, kwargs), wishes.batches)]
    buckets = tuple(built(*each) for each in filled_up)
    errors = [settled(one, *each) for one, each in zip((*made, *buckets), (*asked, *filled_up), strict=True)]
    chooser.measured.save()
    return Contents(made, buckets, worst(errors), target or type(model).__name__, origin)


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
