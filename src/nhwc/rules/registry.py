"""The rules by code. A rule is one small file: it reads a Flow and yields Drafts; its docstring is its title."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nhwc.errors import RegistryError
from nhwc.model import Severity, Source, TensorMeta
from nhwc.rules.flow import Flow

KINDS = ("copy", "loss", "slow", "risk", "numerics")


@dataclass(frozen=True)
class Draft:
    """What a rule says of one call, before equal drafts are merged into one Finding.

    cause: index of the culprit call. calls: how many operator calls the draft itself stands for.
    ms: a time that the trace already holds (library reorders); None leaves it to the measurement.
    key: what must be equal, besides code, operator, phase and cause, for drafts to merge; None: module and source.
    """

    call: int | None
    operator: str
    module: str
    source: Source | None
    phase: str
    tensors: tuple[TensorMeta, ...]
    bytes: int
    message: str
    advice: str
    cause: int | None = None
    severity: Severity | None = None
    calls: int = 1
    ms: float | None = None
    key: object = None


@dataclass(frozen=True)
class Rule:
    """A registered rule. code is stable; kind says what sort of thing it finds.

    needs_time: the rule only suspects, so that its finding is a note; a measured loss makes it one of ``severity``,
        and where none is measured the finding is dropped.
    """

    code: str
    title: str
    kind: str
    severity: Severity
    find: Callable[[Flow], Iterator[Draft]]
    needs_time: bool = False


RULES: dict[str, Rule] = {}


Find = Callable[[Flow], Iterator[Draft]]


def rule(code: str, *, kind: str, severity: Severity, needs_time: bool = False) -> Callable[[Find], Find]:
    """Register a rule; refuses a code that is malformed or taken, and a kind that does not exist."""

    def register(find: Find) -> Find:
        if not (code.startswith("NH") and code[2:].isdigit() and len(code) == 5):
            raise RegistryError(f"rule code {code!r} is malformed; use NH and three digits")
        if code in RULES:
            raise RegistryError(f"rule code {code} is taken by {RULES[code].title!r}")
        if kind not in KINDS:
            raise RegistryError(f"rule kind {kind!r} is unknown; known: {', '.join(KINDS)}")
        title = (find.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        if not title:
            raise RegistryError(f"rule {code} has no title; its docstring's first line is it")
        RULES[code] = Rule(code, title, kind, severity, find, needs_time)
        return find

    return register


def rule_for(code: str) -> Rule:
    """The rule of that code; RegistryError names the known ones."""
    try:
        return RULES[code]
    except KeyError:
        raise RegistryError(f"no rule {code!r}; known rules: {', '.join(sorted(RULES))}") from None
