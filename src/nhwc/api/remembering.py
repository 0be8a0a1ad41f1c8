"""The report of an optimization, kept in its model as plain text, which copies and pickles carry along."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from nhwc import optimization_report
from nhwc.api.showing import Showing
from nhwc.conversion.targets import inside_compiled
from nhwc.errors import ModelError
from nhwc.report.optimization.summary import headline
from nhwc.schema import dump_optimization
from nhwc.schema import load_optimization as read_optimization

_ATTRIBUTE = "_nhwc_optimization"


@dataclass(frozen=True, repr=False)
class OptimizeReport(Showing, optimization_report.Optimization):
    """An optimization that shows itself: in a terminal, and in a file."""

    _kind = "optimization"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.target}: {headline(self)}>"


def optimization_of(model: Callable[..., Any]) -> OptimizeReport:
    """What ``optimize`` found for a model: of the object that it returned, or of a copy of it.

    Raises ModelError for one that was not optimized.
    """
    core = inside_compiled(model) if isinstance(model, nn.Module) else model
    data = getattr(core, "__dict__", {}).get(_ATTRIBUTE)
    if data is None:
        raise ModelError(
            f"this {type(model).__name__} was not optimized; pass what nhwc.optimize(model, *inputs) returned"
        )
    return report_of(read_optimization(data))


def load_optimization(source: dict[str, Any] | str | Path) -> OptimizeReport:
    """The optimization saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    return report_of(read_optimization(source))


def report_of(found: optimization_report.Optimization) -> OptimizeReport:
    """The same, as it shows itself."""
    names = (field.name for field in fields(optimization_report.Optimization))
    return OptimizeReport(**{name: getattr(found, name) for name in names})


def remember(model: object, report: OptimizeReport) -> None:
    """Make an object carry its report, as JSON: a model pickled whole does not need this package for it."""
    vars(model)[_ATTRIBUTE] = json.dumps(dump_optimization(report))


@contextmanager
def remembering(model: object, report: OptimizeReport) -> Iterator[None]:
    """``remember`` it, unless what is done to the model inside fails or is interrupted."""
    before = vars(model).get(_ATTRIBUTE)
    try:
        remember(model, report)
        yield
    except BaseException:
        forget(model)
        if before is not None:
            vars(model)[_ATTRIBUTE] = before
        raise


def forget(model: object) -> bool:
    """Take the report off ``model``; whether there was one."""
    return vars(model).pop(_ATTRIBUTE, None) is not None
