"""The parts that variants are made of, by name; a part registers itself where it is written."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from nhwc.errors import RegistryError, VariantError

if TYPE_CHECKING:
    from nhwc.variants.setup import Setup


class Kind(IntEnum):
    """What a part changes; parts apply in this order, and a variant has at most one of each kind."""

    FORMAT = 0
    MODEL = 1
    PRECISION = 2
    COMPILATION = 3


@dataclass(frozen=True)
class Part:
    """One registered part.

    refusal: why a device cannot run it, empty where it can. formats: the memory formats that it changes anything in,
    empty for all.
    """

    name: str
    kind: Kind
    about: str
    apply: Callable[[Setup], None]
    refusal: Callable[[torch.device], str]
    formats: tuple[str, ...] = ()


_PARTS: dict[str, Part] = {}


def part(
    name: str,
    kind: Kind,
    about: str,
    refusal: Callable[[torch.device], str] = lambda _device: "",
    *,
    formats: tuple[str, ...] = (),
) -> Callable[[Callable[[Setup], None]], Callable[[Setup], None]]:
    """Register a function that changes a Setup as the part ``name``; ``about`` is one line for people.

    Raises RegistryError where the name is no lower-case word, or is taken.
    """
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"a part of a variant is named by a lower-case word, got {name!r}")

    def register(apply: Callable[[Setup], None]) -> Callable[[Setup], None]:
        if name in _PARTS:
            raise RegistryError(f"the part {name!r} is registered twice; give the second another name")
        _PARTS[name] = Part(name, kind, about, apply, refusal, formats)
        return apply

    return register


def parts() -> tuple[Part, ...]:
    """All registered parts, in the order in which they apply."""
    return tuple(sorted(_PARTS.values(), key=lambda each: (each.kind, each.name)))


def parse(spec: str, device: torch.device | None = None) -> tuple[Part, ...]:
    """The parts of a variant such as "channels_last+bf16", in the order in which they apply.

    Raises RegistryError for an unknown part, two of a kind, or no memory format; VariantError where ``device`` cannot
    run one.

    >>> [each.name for each in parse("compile+channels_last")]
    ['channels_last', 'compile']
    """
    names = [name.strip() for name in spec.split("+")]
    unknown = [name for name in names if name not in _PARTS]
    if unknown:
        known = [each.name for each in parts()]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"join some of {', '.join(known)} by +"
        raise RegistryError(f"variant {spec!r}: there is no {unknown[0]!r}; {hint}")
    chosen = sorted((_PARTS[name] for name in names), key=lambda each: each.kind)
    for earlier, later in itertools.pairwise(chosen):
        if earlier.kind is later.kind:
            raise RegistryError(f"variant {spec!r}: {earlier.name} and {later.name} exclude each other; leave one out")
    if chosen[0].kind is not Kind.FORMAT:
        formats = ", ".join(each.name for each in parts() if each.kind is Kind.FORMAT)
        raise RegistryError(f"variant {spec!r} names no memory format; begin it with one of {formats}")
    for each in chosen if device is not None else ():
        reason = each.refusal(device)  # type: ignore[arg-type]
        if reason:
            raise VariantError(f"{each.name} cannot be had here: {reason}")
    return tuple(chosen)
