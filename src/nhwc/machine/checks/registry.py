"""The checks by name: a check is one function from a snapshot to an answer, registered where it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nhwc.errors import RegistryError
from nhwc.health import Fact, State
from nhwc.machine.snapshot import Snapshot


@dataclass(frozen=True)
class Answer:
    """What a check says: a value, its state, and one line on what to do, which every state but fine needs."""

    value: str
    state: State = State.FINE
    advice: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.state is not State.FINE and not self.advice:
            raise ValueError(f"{self.value!r} is {self.state}, and nothing says what to do")


Check = Callable[[Snapshot], Answer | None]
_CHECKS: dict[tuple[str, str], Check] = {}


def check(subject: str, name: str) -> Callable[[Check], Check]:
    """Register a function as the check ``name`` of a subject; it answers None where its fact does not exist.

    Raises RegistryError where the name is empty or taken.
    """
    if not subject.strip() or not name.strip():
        raise RegistryError(f"a check needs a subject and a name, got {subject!r} and {name!r}")

    def register(function: Check) -> Check:
        if (subject, name) in _CHECKS:
            raise RegistryError(f"the check {name!r} of {subject!r} is registered twice; give the second another name")
        _CHECKS[subject, name] = function
        return function

    return register


def checks() -> tuple[tuple[str, str], ...]:
    """(subject, name) of every check, in the order in which they run."""
    return tuple(_CHECKS)


def facts(snapshot: Snapshot) -> tuple[Fact, ...]:
    """What every check says of a snapshot, those left out whose fact this machine does not have."""
    answers = {key: function(snapshot) for key, function in _CHECKS.items()}
    return tuple(
        Fact(*key, answer.value, answer.state, answer.advice, answer.source)
        for key, answer in answers.items()
        if answer is not None
    )
