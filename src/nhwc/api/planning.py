"""Plans: the fastest format for every module of a model, by the times of its operators on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from nhwc import kernels
from nhwc.api.autocasting import autocast_dtype
from nhwc.api.costing import Costs, kept
from nhwc.api.kept_steps import KeptSteps, Recorded, step_key
from nhwc.api.plans import FormatPlan
from nhwc.conversion import bring, converted
from nhwc.errors import ConversionError, ModelError, PlanError
from nhwc.formats import layout_of
from nhwc.kept_times import folder
from nhwc.machine import environment
from nhwc.measure import conversion_call
from nhwc.model import Call, Trace
from nhwc.plan import Plan, PlanInput, tree_digest, why_stale
from nhwc.planner import Cost, Flow, Value, flow, labelled, plan_for
from nhwc.progress import Progress, quiet
from nhwc.recorder import Options
from nhwc.recorder import record as record_step
from nhwc.recorder.modules import unwrap
from nhwc.recorder.run import device_of, tensors_in
from nhwc.strides import CONTIGUOUS, LayoutKind, channels_last_for, strides_for


@dataclass(frozen=True)
class _Step:
    """One step of a model, in the way in which it is to be planned."""

    model: nn.Module
    inputs: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Options

    def tensors(self) -> list[torch.Tensor]:
        return tensors_in([self.inputs, self.kwargs])

    def in_format(self, memory_format: str) -> Trace:
        """Every call of the step with the model and its inputs in one format; both are as before afterwards."""
        with converted(self.model, memory_format):
            inputs, kwargs = bring(tuple(self.inputs), memory_format), bring(dict(self.kwargs), memory_format)
            assert isinstance(inputs, tuple)
            assert isinstance(kwargs, dict)
            # under the caller's autocast: casts of the weights as they lay in the other format
            torch.clear_autocast_cache()
            return record_step(self.model, *inputs, kwargs=kwargs, options=self.options)

    def in_both(self, tell: Progress) -> Recorded:
        """The step in contiguous and in channels last; from an earlier run of this model, where it is kept."""

        def record() -> Recorded:
            tell("record", 0, 2)
            contiguous = self.in_format(CONTIGUOUS)
            tell("record", 1, 2)
            return contiguous, _in_channels_last(self)

        key = step_key(self.model, self.inputs, self.kwargs, self.options, self.subject())
        found = KeptSteps(folder()).find(key, record)
        tell("record", 2, 2)
        return found

    def subject(self) -> dict[str, Any]:
        """What a plan for this step holds for, as ``nhwc.plan.why_stale`` takes it."""
        inputs = tuple(
            PlanInput(f"input {place}", tuple(each.shape), str(each.dtype).removeprefix("torch."), str(each.device))
            for place, each in enumerate(self.tensors())
        )
        return {
            "environment": environment(device_of(self.model, self.inputs)),
            "training": self.options.train,
            "amp": str(self.options.amp or "").removeprefix("torch."),
            "inputs": inputs,
            "keywords": tuple(self.kwargs),
            "tree": tree_digest(unwrap(self.model).named_modules()),
        }


def plan_formats(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    amp: torch.dtype | None = None,
    repeats: int = 3,
    budget_s: float = 45.0,
    target: str = "",
    progress: Progress | None = None,
) -> FormatPlan:
    """The formats in which the modules of ``model`` are predicted to take the least time together.

    The model runs once in each format, and every distinct operator call of both is timed alone; what earlier plans on
    this machine have recorded and timed is known ($NHWC_CACHE, else the user's cache folder). The choice is exact for
    those times. kwargs, train, loss: as for ``nhwc.record``. amp: dtype of autocast; without one that of the autocast
    around the call, if any. repeats: timings of a call, 1 or more. budget_s: seconds that the timings may take; what is
    left is estimated from its bytes and marked so. progress: told (stage, done, total).

    The model, its inputs and random state are as before afterwards. Raises PlanError for what is no module or a
    number below its least, and ModelError where the model raises in contiguous format. A cache that cannot be used is
    a warning.

    >>> plan = plan_formats(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.rand(1, 3, 8, 8), budget_s=0)
    >>> [placement.module_type for placement in plan.placements], plan.estimated
    (['Conv2d', 'ReLU'], True)
    """
    tell = progress or quiet
    if not isinstance(model, nn.Module):
        raise PlanError(f"a plan is made for an nn.Module, not for a {type(model).__name__}; wrap it in a module")
    if repeats < 1 or budget_s < 0:
        raise PlanError(f"repeats={repeats} and budget_s={budget_s:g}: give at least 1 timing and 0 seconds")
    options = Options(
        train=train,
        loss=loss,
        amp=autocast_dtype(amp, device_of(model, inputs)),
        inner=False,
        libraries=False,
        kernels_on=kernels.active,
        target=target,
    )
    step = _Step(model, inputs, dict(kwargs or {}), options)
    contiguous, channels_last = step.in_both(tell)
    subject = step.subject()
    own = _paths(model)
    here = flow(contiguous, own)
    there = None if channels_last is None else flow(channels_last, own)
    values = () if there is None else labelled(here, there)
    times = kept(subject["environment"])
    costs = Costs(times, contiguous.kernels)
    moves = [_conversions(value, train) for value in values]
    wanted = [call for each in (here, there) if each is not None for calls in each.modules.values() for call in calls]
    converting = [call for pair in moves for calls in pair for call in calls]
    costs.find([*wanted, *converting], repeats, budget_s, tell)
    for message in times.messages:
        warnings.warn(message, UserWarning, stacklevel=2)
    solution = plan_for(
        here,
        values,
        _module_costs(costs, here, there),
        [costs.in_formats(*pair) for pair in moves],
        _given(values, contiguous, step.tensors()),
    )
    return FormatPlan(
        target=contiguous.target,
        placements=solution.placements,
        moves=solution.moves,
        kernels=contiguous.kernels,
        predicted=solution.predicted,
        **subject,
    )


def check_plan(
    plan: Plan,
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    amp: torch.dtype | None = None,
) -> None:
    """Raise PlanError, with the reason, where ``plan`` was made for another model, call, autocast, device or torch.

    amp: as for ``plan_formats``.
    """
    options = Options(train=train, amp=autocast_dtype(amp, device_of(model, inputs)))
    reason = why_stale(plan, **_Step(model, inputs, dict(kwargs or {}), options).subject()) or _why_unknown(plan, model)
    if reason is not None:
        raise PlanError(f"the plan for {plan.target} does not hold here: {reason}; make a new plan")


def _why_unknown(plan: Plan, model: nn.Module) -> str | None:
    """One sentence on what an edited plan names and the model, or nhwc, does not have; None for nothing."""
    paths = _paths(model)
    for module in (each.module for part in (plan.placements, plan.moves) for each in part):
        if module not in paths:
            return f"it names the module {module!r}, which the model does not have"
    for name in plan.kernels:
        if name not in {each.name for each in kernels.kernels()}:
            return f"it names the kernel {name!r}, which nhwc does not have"
    return None


def _paths(model: nn.Module) -> frozenset[str]:
    return frozenset(path for path, _ in unwrap(model).named_modules(remove_duplicate=False))


def _in_channels_last(step: _Step) -> Trace | None:
    """The step in channels last, None where it cannot run so: everything is then planned in contiguous."""
    try:
        return step.in_format("auto")
    except (ModelError, ConversionError):
        return None


def _conversions(value: Value, train: bool) -> tuple[list[Call], list[Call]]:
    """The calls that bring a tensor to contiguous, and to channels last; in training its gradient goes the other way.

    Inputs of the step have no gradient.
    """
    name = channels_last_for(len(value.meta.shape))
    assert name is not None
    there = replace(value.meta, strides=strides_for(value.meta.shape, name), offset=0)
    to_channels_last = conversion_call(value.meta, name)
    to_contiguous = conversion_call(there, CONTIGUOUS)
    if train and value.producer is not None:
        both = [to_contiguous, to_channels_last]
        return both, both
    return [to_contiguous], [to_channels_last]


def _module_costs(costs: Costs, here: Flow, there: Flow | None) -> dict[str, Cost]:
    """Costs of every module that runs in contiguous; its calls in channels last may be others."""
    found = {}
    for path, calls in here.modules.items():
        if there is not None:
            found[path] = costs.in_formats(calls, there.modules.get(path, ()))
            continue
        ms, estimated = costs.of(calls)
        shapes = {len(meta.shape) for call in calls for meta in (*call.inputs, *call.outputs)}
        found[path] = Cost((ms, float("inf") if shapes & {4, 5} else ms), estimated)
    return found


def _given(values: Sequence[Value], trace: Trace, tensors: Sequence[torch.Tensor]) -> list[int]:
    """The label in which the user gives each value that is an input of the step, 0 for the others."""
    kinds = (LayoutKind.CHANNELS_LAST, LayoutKind.CHANNELS_LAST_3D)
    lies = {
        meta.storage: int(layout_of(tensor).kind in kinds) for meta, tensor in zip(trace.inputs, tensors, strict=True)
    }
    return [lies[value.meta.storage] if value.producer is None else 0 for value in values]
