"""The plans that optimize tries: those that were given, checked, or one that is made for the example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nhwc.api.other_shapes import Example
from nhwc.api.planning import check_plan, plan_formats
from nhwc.errors import NhwcError, PlanError
from nhwc.optimization.arrangement import PLANNED
from nhwc.plan import Plan, are_mixed
from nhwc.progress import Progress


def plans_for(
    model: nn.Module,
    example: Example,
    others: Sequence[Example],
    *,
    given: Sequence[Plan],
    candidates: Sequence[str] | None,
    train: bool,
    loss: Callable[[Any], torch.Tensor] | None,
    budget_s: float,
    target: str,
    tell: Progress,
) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """The plans, that of the example first or none, and sentences on why it is not tried.

    others: examples of other shapes, for which plans are made too where none was given.

    Raises PlanError where none that was given holds for the example, or one not for this model at all, and what a plan
    raises that was asked for.
    """
    named = [candidates] if isinstance(candidates, str) else list(candidates or ())
    asked_for = any(each.split("+")[0].strip() == PLANNED for each in named)
    is_left_out = candidates is not None and not asked_for
    if given:
        plans = _checked(given, model, example, train)
    elif is_left_out:
        return (), ()
    else:
        try:
            plans = tuple(
                plan_formats(
                    model,
                    *each.inputs,
                    kwargs=each.keywords,
                    train=train,
                    loss=loss,
                    budget_s=budget_s,
                    target=target,
                    progress=tell,
                )
                for each in (example, *others)
            )
        except NhwcError as error:
            if asked_for:
                raise
            return (), (f"{PLANNED} was not tried: {error}",)
    if is_left_out:
        return plans, (f"{PLANNED} was not tried: a plan was given, but the candidates do not name it",)
    if not are_mixed(plans) and not asked_for:
        only = next((plan.format for plan in plans if plan.format), None)
        told = "the plan has" if len(plans) == 1 else "the plans have"
        which = f"all modules in {only.replace('_', ' ')}" if only else "no module with a format to choose"
        return plans, (f"{PLANNED} was not tried: {told} {which}",)
    return plans, ()


def _checked(given: Sequence[Plan], model: nn.Module, example: Example, train: bool) -> tuple[Plan, ...]:
    """Those that were given, that of the example first."""
    fitting = [plan for plan in given if _reason(plan, model, example, train) is None]
    if not fitting:
        raise PlanError(str(_reason(given[0], model, example, train)))
    first, others = fitting[0], [plan for plan in given if plan is not fitting[0]]
    for plan in others:
        error = _reason(replace(plan, inputs=first.inputs, keywords=first.keywords), model, example, train)
        if error is not None:
            raise error
    shapes = [tuple(each.shape for each in plan.inputs) for plan in (first, *others)]
    twice = next((each for each in shapes if shapes.count(each) > 1), None)
    if twice is not None:
        raise PlanError(f"{shapes.count(twice)} plans are for inputs of the shapes {list(twice)}; give one of them")
    return first, *others


def _reason(plan: Plan, model: nn.Module, example: Example, train: bool) -> PlanError | None:
    try:
        check_plan(plan, model, *example.inputs, kwargs=example.keywords, train=train)
    except PlanError as error:
        return error
    return None
