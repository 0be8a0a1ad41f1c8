"""The parts that variants are made of, by name; a part registers itself where it is written.

A part may take values, written after its name: "channels_last+kernels:pad:cat".
"""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
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

    name: with its values, where a variant gives it some. refusal: why a device cannot run it, empty where it can.
    formats: the memory formats that it changes anything in, empty for all. check: raises RegistryError for values that
    it does not take; None where it takes none. alone: whether no other part goes with it.
    """

    name: str
    kind: Kind
    about: str
    apply: Callable[..., None]
    refusal: Callable[[torch.device], str]
    formats: tuple[str, ...] = ()
    check: Callable[[tuple[str, ...]], None] | None = None
    alone: bool = False


_PARTS: dict[str, Part] = {}


def part(
    name: str,
    kind: Kind,
    about: str,
    refusal: Callable[[torch.device], str] = lambda _device: "",
    *,
    formats: tuple[str, ...] = (),
    check: Callable[[tuple[str, ...]], None] | None = None,
    alone: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function that changes a Setup as the part ``name``; ``about`` is one line for people.

    check: for a part with values, which the function takes after the Setup; raises RegistryError for other ones.
    Raises RegistryError where the name is no lower-case word, or is taken.
    """
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"a part of a variant is named by a lower-case word, got {name!r}")

    def register(apply: Callable[..., None]) -> Callable[..., None]:
        if name in _PARTS:
            raise RegistryError(f"the part {name!r} is registered twice; give the second another name")
        _PARTS[name] = Part(name, kind, about, apply, refusal, formats, check, alone)
        return apply

    return register


def parts() -> tuple[Part, ...]:
    """All registered parts, in the order in which they apply."""
    return tuple(sorted(_PARTS.values(), key=lambda each: (each.kind, each.name)))


def parse(spec: str, device: torch.device | None = None) -> tuple[Part, ...]:
    """The parts of a variant such as "channels_last+bf16", in the order in which they apply.

    Raises RegistryError for an unknown part, values that it does not take, parts that exclude each other, or no memory
    format;
    VariantError where ``device`` cannot run one.

    >>> [each.name for each in parse("compile+channels_last")]
    ['channels_last', 'compile']
    """
    written = [name.strip() for name in spec.split("+")]
    unknown = [name for name in (each.partition(":")[0] for each in written) if name not in _PARTS]
    if unknown:
        known = [each.name for each in parts()]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"join some of {', '.join(known)} by +"
        raise RegistryError(f"variant {spec!r}: there is no {unknown[0]!r}; {hint}")
    chosen = sorted((_with_values(spec, each) for each in written), key=lambda each: each.kind)
    for earlier, later in itertools.pairwise(chosen):
        if earlier.kind is later.kind:
            raise RegistryError(f"variant {spec!r}: {earlier.name} and {later.name} exclude each other; leave one out")
    sole = next((each.name for each in chosen if each.alone), "")
    if sole and len(chosen) > 1:
        raise RegistryError(f"variant {spec!r}: {sole} stands alone; leave out the other parts")
    if chosen[0].kind is not Kind.FORMAT:
        formats = ", ".join(each.name for each in parts() if each.kind is Kind.FORMAT)
        raise RegistryError(f"variant {spec!r} names no memory format; begin it with one of {formats}")
    for each in chosen if device is not None else ():
        reason = each.refusal(device)  # type: ignore[arg-type]
        if reason:
            raise VariantError(f"{each.name} cannot be had here: {reason}")
    return tuple(chosen)


def _with_values(spec: str, written: str) -> Part:
    """The part ``written`` in ``spec``, which puts its values into what it does."""
    name, *values = written.split(":")
    found = _PARTS[name]
    if not values:
        return found
    if found.check is None:
        raise RegistryError(f"variant {spec!r}: {name} takes no values; leave out {written.removeprefix(name)!r}")
    try:
        found.check(tuple(values))
    except RegistryError as error:
        raise RegistryError(f"variant {spec!r}: {error}") from error
    return replace(found, name=written, apply=functools.partial(_apply, found.apply, tuple(values)))


def _apply(apply: Callable[..., None], values: tuple[str, ...], setup: Setup) -> None:
    apply(setup, *values)
