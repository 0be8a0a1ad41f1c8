"""What the options of ``nhwc bench`` ask of a measurement, the same for one model and for a suite of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.cli.exits import say
from nhwc.errors import TargetError

if TYPE_CHECKING:
    import torch

ALL = "all"
#: What is measured where nothing else is asked for.
USUAL = ("contiguous", "channels_last")


@dataclass(frozen=True)
class Measuring:
    """variants: specs, or ``("all",)``; empty for the usual two.

    baseline: empty for contiguous where it is there, else the first. precision, margin: shares, 0.02 for 2 %.
    budget_s: seconds for each model.
    """

    variants: tuple[str, ...]
    baseline: str
    precision: float
    margin: float
    budget_s: float
    seed: int


def measuring(
    variants: str | None, baseline: str | None, precision: str, margin: str, budget_s: float, seed: int
) -> Measuring:
    """Read the words of a command line. Raises TargetError, before torch is imported, for those that make no sense."""
    specs = tuple(spec.strip() for spec in variants.split(",")) if variants is not None else ()
    if any(not spec for spec in specs):
        raise TargetError(f"--variants {variants!r} has an empty name; write contiguous,channels_last or all")
    if specs != (ALL,) and len(specs) == 1:
        raise TargetError(f"--variants {variants} is one variant, and a ratio needs two; name another, or all")
    if ALL in specs and len(specs) > 1:
        raise TargetError("--variants all stands alone; leave out the others")
    if baseline is not None and specs and specs != (ALL,) and baseline not in specs:
        raise TargetError(f"--baseline {baseline} is none of the variants {', '.join(specs)}; name one of them")
    if not (budget_s > 0 and math.isfinite(budget_s)):
        raise TargetError(f"--budget {budget_s:g} is no number of seconds above 0")
    narrow, smallest = share("--precision", precision), share("--margin", margin)
    if narrow <= smallest:
        raise TargetError(f"--precision {precision} can never be reached with --margin {margin}; give a larger one")
    return Measuring(specs, baseline or "", narrow, smallest, budget_s, seed)


def share(option: str, text: str) -> float:
    """A share below 1, from percent or from a number.

    >>> share("--precision", "2%"), share("--margin", "0.01")
    (0.02, 0.01)
    """
    word = text.strip()
    try:
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise TargetError(f"{option} {text!r} is no share below 100 %; write 2% or 0.02")
    return value


def chosen_variants(asked: Measuring, usual: tuple[str, ...], device: torch.device) -> tuple[str, ...]:
    """The variants to measure on ``device``; a part that it lacks is an error where it was named, a line otherwise.

    Raises RegistryError for a variant that does not exist, VariantError for one that cannot run there, TargetError
    where the baseline is none of them.
    """
    from nhwc import api

    left_out: tuple[str, ...] = ()
    if asked.variants == (ALL,):
        specs, left_out = api.every_variant(device)
    else:
        specs = asked.variants or usual
        api.check_variants(specs, device)
    if asked.baseline and asked.baseline not in specs:
        raise TargetError(f"--baseline {asked.baseline} is none of the variants {', '.join(specs)}; name one of them")
    for sentence in left_out:
        say(sentence)
    return specs
