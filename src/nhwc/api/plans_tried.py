"""The plans that optimize tries: those that were given, checked, or one that is made for the example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nhwc.api.planning import check_plan, plan_formats
from nhwc.errors import NhwcError, PlanError
from nhwc.optimization.arrangement import PLANNED
from nhwc.plan import Plan
from nhwc.progress import Progress


def plans_for(
    model: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    given: Sequence[Plan],
    candidates: Sequence[str] | None,
    train: bool,
    loss: Callable[[Any], torch.Tensor] | None,
    budget_s: float,
    target: str,
    tell: Progress,
) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """The plans, that of the example first or none, and sentences on why there is none.

    Raises PlanError where none that was given holds for the example, and what a plan raises that was asked for.
    """
    if given:
        fitting = [plan for plan in given if _reason(plan, model, inputs, kwargs, train) is None]
        if not fitting:
            raise PlanError(str(_reason(given[0], model, inputs, kwargs, train)))
        return tuple(given), ()
    named = [candidates] if isinstance(candidates, str) else list(candidates or ())
    asked_for = any(each.split("+")[0].strip() == PLANNED for each in named)
    if candidates is not None and not asked_for:
        return (), ()
    try:
        plan = plan_formats(
            model, *inputs, kwargs=kwargs, train=train, loss=loss, budget_s=budget_s, target=target, progress=tell
        )
    except NhwcError as error:
        if asked_for:
            raise
        return (), (f"{PLANNED} was not tried: {error}",)
    if plan.format is not None and not asked_for:
        return (plan,), (f"{PLANNED} was not tried: the plan has all modules in {plan.format.replace('_', ' ')}",)
    return (plan,), ()


def _reason(
    plan: Plan, model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], train: bool
) -> PlanError | None:
    try:
        check_plan(plan, model, *inputs, kwargs=kwargs, train=train)
    except PlanError as error:
        return error
    return None
