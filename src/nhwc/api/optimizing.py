"""The verb optimize: the arrangement of a model that is proved fastest and right, put on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nhwc.api.autocasting import autocast_dtype, under_autocast
from nhwc.api.candidates import Offer, offers
from nhwc.api.deciding import Decision, better_plain, compared, decide
from nhwc.api.other_shapes import Example, other_examples
from nhwc.api.plans_tried import plans_for
from nhwc.api.proving import Asked, arranged, measured, together, verified_with
from nhwc.api.remembering import OptimizeReport, remember, remembering
from nhwc.api.serving import engine
from nhwc.api.verifying import VerifyReport
from nhwc.conversion.plan import plan_conversion
from nhwc.conversion.targets import convertible, inside_compiled
from nhwc.errors import ConversionError, ModelError, PlanError
from nhwc.optimization import arrange, is_arranged
from nhwc.optimization_report import PLAIN, Form, OtherShape
from nhwc.plan import Plan
from nhwc.progress import Progress, quiet
from nhwc.proof import Outcome, VariantProof
from nhwc.recorder import device_of
from nhwc.timing import Benchmark


def optimize(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    candidates: Sequence[str] | None = None,
    plan: Plan | Sequence[Plan] | None = None,
    shapes: Sequence[Sequence[Any]] = (),
    batches: Sequence[int] = (),
    amp: torch.dtype | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    budget_s: float = 60.0,
    margin: float = 0.05,
    seed: int = 0,
    target: str = "",
    progress: Progress | None = None,
) -> Any:
    """The model in the arrangement that is proved fastest for these inputs on this device; unchanged where none is.

    Candidates run on copies, in turn, with the inputs as they are given. One is chosen where its interval lies above
    the better of contiguous and channels last, each applied to the whole model, and where ``verify`` passes it; else
    that better plain format, where it is proved better than the other. Formats and kernels are put on the model itself,
    which is returned: it trains on, and ``nhwc.restore`` undoes it. An engine or a compiled model is an object of its
    own, called like the model. ``nhwc.optimization_of`` tells what was chosen, and why.

    inputs, kwargs: example arguments, of the shapes, dtypes and device that the model is to be fast for.
    train: whole training steps are measured and verified instead of forward passes in evaluation mode.
    candidates: specs besides both plain formats ("channels_last+kernels", "engine", "channels_last+compile"); by
        default all that the device has, without torch.compile.
    plan: what the candidate "planned" stands for, or several for several shapes of inputs, that of the example for
        all other shapes; without one, a plan is made for the example and for each of ``shapes`` and ``batches``.
    shapes: further example arguments, a tuple for each; batches: batch sizes besides the example's. What is chosen for
        the example is verified with each of them, and proved slower with none.
    amp: dtype of autocast that the model is called under; without one that of the autocast around this call, if any.
    optimizer: those that hold the model's parameters and have state: it follows the weights.
    loss: for training, model output → scalar; without one backward starts from a gradient of ones.
    budget_s: seconds of rounds, and of timing operators for a plan, at most; for each shape.
    margin, seed: as for ``bench``.
    progress: called with (stage, done, total).

    Raises ModelError where the model raises in contiguous format, ConversionError where it cannot be converted,
    RegistryError and VariantError for a candidate that there is not, PlanError for a plan that does not hold here. The
    model is then as before, also after Ctrl-C.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> found = optimize(net, torch.randn(1, 3, 16, 16), candidates=[], budget_s=0.5)
    >>> found is net
    True
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"optimize takes an nn.Module, got {type(model).__name__}; names are for the command line")
    if loss is not None and not train:
        raise ModelError("a loss is for training: pass train=True too, or leave the loss out")
    began = time.monotonic()
    given = () if optimizer is None else (optimizer,) if isinstance(optimizer, Optimizer) else tuple(optimizer)
    tell, title = progress or quiet, target or type(model).__name__
    device = device_of(model, inputs)
    dtype, example = autocast_dtype(amp, device), Example(inputs, dict(kwargs or {}))
    others = other_examples(example, shapes, batches)
    asked = Asked(model, example, others, train, loss, budget_s, margin, seed, title, tell, dtype)
    if is_arranged(model):
        raise ModelError(
            f"this {type(model).__name__} has kernels or conversions of an earlier optimization; call "
            "nhwc.restore(model) first"
        )
    plans = _plans_in(plan)
    with under_autocast(dtype, device):
        offered, decision, report = _found(asked, plans, candidates, device)
    report = replace(report, seconds=time.monotonic() - began)
    return _applied(asked, offered.get(decision.chosen), decision, report, given)


def _plans_in(given: Plan | Sequence[Plan] | None) -> tuple[Plan, ...]:
    plans = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    for each in plans:
        if not isinstance(each, Plan):
            raise PlanError(
                f"plan takes plans, got a {type(each).__name__}; read it from its file: nhwc.api.load_plan(path)"
            )
    return plans


def _found(
    asked: Asked, given: Sequence[Plan], candidates: Sequence[str] | None, device: torch.device
) -> tuple[dict[str, Offer], Decision, OptimizeReport]:
    """What there is, what to choose of it, and the report."""
    plans, notes = plans_for(
        asked.model,
        asked.example,
        asked.others,
        given=given,
        candidates=candidates,
        train=asked.train,
        loss=asked.loss,
        budget_s=asked.budget_s,
        target=asked.target,
        tell=asked.tell,
    )
    training = asked.model.training
    offered, left_out = offers(candidates, device, train=asked.train, plans=plans, training=training, amp=asked.amp)
    variants, refused = arranged(asked, offered)
    benchmark, *elsewhere = [measured(asked, each, offered, variants) for each in asked.examples]
    verified: list[VerifyReport] = []

    def verify_one(name: str) -> VariantProof:
        for each in asked.examples:
            verified.append(verified_with(asked, each, offered[name]))
            proof = verified[-1].variants[0]
            if proof.outcome is not Outcome.PASSED:
                break
        return proof

    planned = [_data(each) for each in plans]
    names = {_shapes_text(each): found for each, found in zip(asked.others, elsewhere, strict=True)}
    gains = _gains(offered, planned[0]) if planned else {}
    decision = decide(benchmark, gains, verify_one, current=_current(asked.model), others=names)
    chosen = offered.get(decision.chosen)
    report = OptimizeReport(
        target=asked.target,
        training=asked.train,
        chosen=decision.chosen,
        form=Form.UNCHANGED if chosen is None else chosen.form,
        reason=decision.reason,
        plain=decision.plain,
        candidates=(*decision.candidates, *refused),
        confidence=decision.confidence,
        benchmark=benchmark,
        verification=together(verified),
        plan=planned[0] if planned else None,
        notes=(*notes, *left_out, *benchmark.unstable),
        amp=str(asked.amp or "").removeprefix("torch."),
        others=tuple(
            _other(each, found, offered, planned) for each, found in zip(asked.others, elsewhere, strict=True)
        ),
    )
    return offered, decision, report


def _other(example: Example, benchmark: Benchmark, offered: Mapping[str, Offer], plans: Sequence[Plan]) -> OtherShape:
    """What is told of another shape."""
    plan = next((each for each in plans if tuple(one.shape for one in each.inputs) == example.shapes), None)
    plain, _ = better_plain(benchmark)
    gains = {} if plan is None else _gains(offered, plan)
    return OtherShape(example.shapes, plain, tuple(compared(benchmark, plain, gains)), benchmark, plan)


def _gains(offered: Mapping[str, Offer], plan: Plan) -> dict[str, float]:
    """How many times faster a plan promises its candidates to be."""
    return {each.name: plan.predicted.gain for each in offered.values() if each.is_planned}


def _data(plan: Plan) -> Plan:
    """The data alone, as it comes back from a file."""
    return Plan(**{each.name: getattr(plan, each.name) for each in fields(Plan)})


def _shapes_text(example: Example) -> str:
    return "inputs of " + " and ".join("x".join(map(str, shape)) for shape in example.shapes)


def _applied(
    asked: Asked, chosen: Offer | None, decision: Decision, report: OptimizeReport, optimizers: Sequence[Optimizer]
) -> Any:
    model = asked.model
    if chosen is None:
        remember(inside_compiled(model), report)
        return model
    asked.tell(f"applying {decision.chosen}", 0, 1)
    if chosen.arrangement.is_engine:
        made = engine(
            model,
            *asked.example.inputs,
            kwargs=asked.example.keywords,
            shapes=[each.inputs for each in asked.others],
            target=asked.target,
            progress=asked.tell,
        )
        remember(made, report)
        return made
    core = convertible(model)
    with remembering(core, report):
        arrange(core, chosen.arrangement, optimizers)
    return torch.compile(core) if chosen.arrangement.compiled else model


def _current(model: nn.Module) -> str:
    """The plain format that the convolutions' weights are in, contiguous where they are in both; "" for neither."""
    core = convertible(model)
    for name, memory_format in zip(PLAIN, ("contiguous", "auto"), strict=True):
        try:
            if not any(move.copies for move in plan_conversion(core, memory_format).moves):
                return name
        except ConversionError:
            continue  # the conversion itself tells the reason
    return ""
