"""What optimize tries: every candidate by its name, with how it is put on a model, measured and verified."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from nhwc.errors import RegistryError, VariantError
from nhwc.optimization import Arrangement, arrangement_of
from nhwc.optimization.arrangement import ENGINE, PLANNED
from nhwc.optimization_report import PLAIN, Form
from nhwc.plan import Plan, are_mixed
from nhwc.variants import parse
from nhwc.variants.planned import offered

KERNELS = "channels_last+kernels"


@dataclass(frozen=True)
class Offer:
    """One candidate. spec: as variants are written; of a planned one the plan itself is in the arrangement."""

    name: str
    spec: str
    arrangement: Arrangement

    @property
    def is_planned(self) -> bool:
        return bool(self.arrangement.plans)

    @property
    def is_in_place(self) -> bool:
        """Whether it is measured as a copy of the model with the arrangement on it."""
        return not (self.arrangement.is_engine or self.arrangement.compiled)

    @property
    def form(self) -> Form:
        if self.arrangement.is_engine:
            return Form.ENGINE
        return Form.COMPILED if self.arrangement.compiled else Form.IN_PLACE

    def verifiable(self, stack: ExitStack) -> str:
        """The variant to verify, known for as long as ``stack`` is open."""
        if not self.is_planned:
            return self.spec
        return self.spec.replace(PLANNED, stack.enter_context(offered(self.arrangement.plans)), 1)


def offers(
    asked: Sequence[str] | None,
    device: torch.device,
    *,
    train: bool,
    plans: Sequence[Plan],
    training: bool,
    amp: torch.dtype | None = None,
) -> tuple[dict[str, Offer], tuple[str, ...]]:
    """Both plain formats and what was asked for, or all that there is, by name; sentences on what was left out.

    training: the mode that the model is in. amp: the dtype of the autocast around it all.

    Raises RegistryError and VariantError for what was asked for and is not.
    """
    notes: list[str] = []
    if asked is None:
        specs = [*PLAIN, *_usual(device, train=train, plans=plans, training=training, amp=amp, notes=notes)]
    else:
        named = [asked] if isinstance(asked, str) else list(asked)
        specs = list(dict.fromkeys([*PLAIN, *(each.strip() for each in named)]))
        for spec in specs:
            _check(spec, device, train=train, plans=plans, training=training, amp=amp)
    return {spec: Offer(spec, spec, arrangement_of(spec, plans)) for spec in specs}, tuple(notes)


def _usual(
    device: torch.device,
    *,
    train: bool,
    plans: Sequence[Plan],
    training: bool,
    amp: torch.dtype | None,
    notes: list[str],
) -> list[str]:
    found = [PLANNED] if are_mixed(plans) else []
    for spec in (KERNELS, *([] if train else [ENGINE])):
        try:
            _check(spec, device, train=train, plans=plans, training=training, amp=amp)
        except VariantError as error:
            notes.append(f"{spec} was not tried: {error}")
        else:
            found.append(spec)
    return found


def _check(
    spec: str,
    device: torch.device,
    *,
    train: bool,
    plans: Sequence[Plan],
    training: bool,
    amp: torch.dtype | None,
) -> None:
    first = spec.split("+", maxsplit=1)[0]
    if first == PLANNED and not plans:
        raise RegistryError(f"candidate {spec!r} needs a plan: pass plan=, or leave it out")
    parse(spec.replace(PLANNED, PLAIN[1], 1) if first == PLANNED else spec, device)
    try:
        arrangement = arrangement_of(spec, plans)
    except ValueError:
        raise RegistryError(
            f"candidate {spec!r} cannot be put on a model; join contiguous, channels_last or planned with kernels or "
            "compile, or name the engine"
        ) from None
    if arrangement.is_engine and train:
        raise VariantError("the engine runs models in evaluation mode; leave it out of an optimization of training")
    if arrangement.is_engine and training:
        raise VariantError("the engine takes models in evaluation mode: call model.eval() first")
    if arrangement.is_engine and amp is not None:
        raise VariantError("the engine runs without autocast; leave it out of an optimization under autocast")
