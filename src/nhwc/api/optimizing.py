"""The verb optimize: the arrangement of a model that is proved fastest and right, put on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nhwc.api.benching import BenchReport, bench
from nhwc.api.candidates import Offer, offers
from nhwc.api.deciding import Decision, decide
from nhwc.api.plans_tried import plans_for
from nhwc.api.remembering import OptimizeReport, remember
from nhwc.api.serving import engine
from nhwc.api.verifying import VerifyReport, verify
from nhwc.conversion.plan import plan_conversion
from nhwc.conversion.targets import convertible
from nhwc.errors import ConversionError, ModelError, NhwcError
from nhwc.optimization import arrange, is_arranged, rearranged
from nhwc.optimization_report import PLAIN, Candidate, Form
from nhwc.plan import Plan
from nhwc.progress import Progress, quiet
from nhwc.proof import VariantProof, Verification
from nhwc.recorder import device_of
from nhwc.timing import Benchmark
from nhwc.variants.steps import Loss


@dataclass(frozen=True)
class _Asked:
    """What every candidate is tried with."""

    model: nn.Module
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    train: bool
    loss: Loss | None
    budget_s: float
    margin: float
    seed: int
    target: str
    tell: Progress


def optimize(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    candidates: Sequence[str] | None = None,
    plan: Plan | Sequence[Plan] | None = None,
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
    plan: what the candidate "planned" stands for, or several for several shapes of inputs, the first for all other
        shapes; without one, a plan is made.
    optimizer: those that hold the model's parameters and have state: it follows the weights.
    loss: for training, model output → scalar; without one backward starts from a gradient of ones.
    budget_s: seconds of rounds, and of timing operators for a plan, at most. margin, seed: as for ``bench``.
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
    asked = _Asked(model, inputs, dict(kwargs or {}), train, loss, budget_s, margin, seed, title, tell)
    if is_arranged(model):
        raise ModelError(
            f"this {type(model).__name__} has kernels or conversions of an earlier optimization; call "
            "nhwc.restore(model) first"
        )
    plans, notes = plans_for(
        model,
        inputs,
        asked.keywords,
        given=() if plan is None else (plan,) if isinstance(plan, Plan) else tuple(plan),
        candidates=candidates,
        train=train,
        loss=loss,
        budget_s=budget_s,
        target=title,
        tell=tell,
    )
    device = device_of(model, inputs)
    offered, left_out = offers(candidates, device, train=train, plans=plans, training=model.training)
    benchmark, refused = _measured(asked, offered)
    verified: list[VerifyReport] = []

    def verify_one(name: str) -> VariantProof:
        verified.append(_verified(asked, offered[name]))
        return verified[-1].variants[0]

    # the data alone, as it comes back from a file
    planned = Plan(**{each.name: getattr(plans[0], each.name) for each in fields(Plan)}) if plans else None
    gains = (
        {} if planned is None else {each.name: planned.predicted.gain for each in offered.values() if each.is_planned}
    )
    decision = decide(benchmark, gains, verify_one, current=_current(model))
    chosen = offered.get(decision.chosen)
    report = OptimizeReport(
        target=title,
        training=train,
        chosen=decision.chosen,
        form=Form.UNCHANGED if chosen is None else chosen.form,
        reason=decision.reason,
        plain=decision.plain,
        candidates=(*decision.candidates, *refused),
        confidence=decision.confidence,
        benchmark=Benchmark(**{name: getattr(benchmark, name) for name in Benchmark.__dataclass_fields__}),
        verification=_together(verified),
        plan=planned,
        seconds=time.monotonic() - began,
        notes=(*notes, *left_out, *benchmark.unstable),
    )
    return _applied(asked, chosen, decision, report, given)


def _measured(asked: _Asked, offered: Mapping[str, Offer]) -> tuple[BenchReport, tuple[Candidate, ...]]:
    """All candidates in one measurement, and those that cannot be put on the model."""
    variants: dict[str, str | nn.Module] = {}
    refused: list[Candidate] = []
    for place, each in enumerate(offered.values()):
        asked.tell(f"arranging {each.name}", place, len(offered))
        try:
            variants[each.name] = rearranged(asked.model, each.arrangement) if each.is_in_place else each.spec
        except NhwcError as error:
            if each.name in PLAIN:
                raise
            refused.append(Candidate(each.name, each.spec, reason=str(error)))
    found = bench(
        asked.model,
        *asked.inputs,
        kwargs=asked.keywords,
        variants=variants,
        baseline=PLAIN[0],
        mode="training" if asked.train else "inference",
        loss=asked.loss,
        precision=max(0.07, 1.4 * asked.margin),
        budget_s=asked.budget_s,
        margin=asked.margin,
        seed=asked.seed,
        target=asked.target,
        progress=asked.tell,
    )
    # what ran is a copy with the arrangement on it, which the measurement knows as a module of the user's
    named = tuple(replace(each, spec=offered[each.name].spec) for each in found.variants)
    return replace(found, variants=named), tuple(refused)


def _verified(asked: _Asked, offer: Offer) -> VerifyReport:
    with ExitStack() as stack:
        return verify(
            asked.model,
            *asked.inputs,
            kwargs=asked.keywords,
            train=asked.train,
            variants=[offer.verifiable(stack)],
            loss=asked.loss,
            seed=asked.seed,
            target=asked.target,
            progress=asked.tell,
        )


def _together(verified: Sequence[VerifyReport]) -> Verification | None:
    """What was verified one by one, as one verification."""
    if not verified:
        return None
    first = verified[0]
    return Verification(
        first.target,
        first.training,
        first.factor,
        tuple(each.variants[0] for each in verified),
        first.device,
        first.torch,
        sum(each.seconds for each in verified),
        tuple(dict.fromkeys(note for each in verified for note in each.notes)),
    )


def _applied(
    asked: _Asked, chosen: Offer | None, decision: Decision, report: OptimizeReport, optimizers: Sequence[Optimizer]
) -> Any:
    model = asked.model
    if chosen is None:
        remember(model, report)
        return model
    asked.tell(f"applying {decision.chosen}", 0, 1)
    if chosen.arrangement.is_engine:
        made = engine(model, *asked.inputs, kwargs=asked.keywords, target=asked.target, progress=asked.tell)
        remember(made, report)
        return made
    arrange(model, chosen.arrangement, optimizers)
    remember(convertible(model), report)
    if not chosen.arrangement.compiled:
        return model
    compiled = torch.compile(model)
    remember(compiled, report)
    return compiled


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
