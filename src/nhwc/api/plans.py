"""Plans that show themselves, are saved and loaded, and are held against another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nhwc import plan
from nhwc.api.showing import Showing
from nhwc.report.plan import differences, headline
from nhwc.schema import load_plan as read_plan


@dataclass(frozen=True, repr=False)
class FormatPlan(Showing, plan.Plan):
    """The format of every module of a model, that shows itself: in a terminal, and in a file (.json or .txt)."""

    _kind = "plan"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.target}: {headline(self)}>"

    def differences(self, other: plan.Plan) -> tuple[str, ...]:
        """One sentence for each difference of ``other`` from this plan, none where both do the same."""
        return differences(self, other)


def showing(found: plan.Plan) -> FormatPlan:
    """The same plan, with what shows it."""
    return FormatPlan(**{field.name: getattr(found, field.name) for field in fields(plan.Plan)})


def load_plan(source: Mapping[str, Any] | str | Path) -> FormatPlan:
    """The plan saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    return showing(read_plan(source))
