"""The proof of an optimization: all candidates measured together, and one verified, with the arguments of one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import nn

from nhwc.api.benching import bench
from nhwc.api.candidates import Offer
from nhwc.api.other_shapes import Example
from nhwc.api.verifying import VerifyReport, verify
from nhwc.errors import NhwcError
from nhwc.optimization import rearranged
from nhwc.optimization_report import PLAIN, Candidate
from nhwc.progress import Progress
from nhwc.proof import Verification
from nhwc.timing import Benchmark
from nhwc.variants.steps import Loss


@dataclass(frozen=True)
class Asked:
    """What every candidate is tried with."""

    model: nn.Module
    example: Example
    others: tuple[Example, ...]
    train: bool
    loss: Loss | None
    budget_s: float
    margin: float
    seed: int
    target: str
    tell: Progress
    amp: torch.dtype | None

    @property
    def examples(self) -> tuple[Example, ...]:
        return (self.example, *self.others)


def arranged(asked: Asked, offered: Mapping[str, Offer]) -> tuple[dict[str, str | nn.Module], tuple[Candidate, ...]]:
    """What is measured of each candidate, and those that cannot be put on the model."""
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
    return variants, tuple(refused)


def measured(
    asked: Asked, example: Example, offered: Mapping[str, Offer], variants: Mapping[str, str | nn.Module]
) -> Benchmark:
    """All candidates in one measurement."""
    found = bench(
        asked.model,
        *example.inputs,
        kwargs=example.keywords,
        variants=dict(variants),
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
    data = {name: getattr(found, name) for name in Benchmark.__dataclass_fields__}
    return Benchmark(**{**data, "variants": named})


def verified_with(asked: Asked, example: Example, offer: Offer) -> VerifyReport:
    with ExitStack() as stack:
        return verify(
            asked.model,
            *example.inputs,
            kwargs=example.keywords,
            train=asked.train,
            variants=[offer.verifiable(stack)],
            loss=asked.loss,
            seed=asked.seed,
            target=asked.target,
            progress=asked.tell,
        )


def together(verified: Sequence[VerifyReport]) -> Verification | None:
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
