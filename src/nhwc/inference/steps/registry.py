"""How operations become steps: every algorithm registers what it can do, and the choice is made by timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nhwc.errors import RegistryError
from nhwc.inference.native import Activation, Placed, Step
from nhwc.inference.operations import Fused, Operation


@dataclass(frozen=True)
class Request:
    """An operation on placed tensors.

    inputs: in the operation's order. output: where the result goes. addend: what the epilogue adds, or None. threads:
    how many will run it. exact: without algorithms that change the rounding of single products, such as Winograd's.
    """

    operation: Operation
    inputs: tuple[Placed, ...]
    output: Placed
    fused: Fused = field(default_factory=Fused)
    addend: Placed | None = None
    threads: int = 1
    exact: bool = False

    @property
    def has_epilogue(self) -> bool:
        return self.fused.activation != Activation.NONE or self.addend is not None


@dataclass(frozen=True)
class Candidate:
    """One way to run a request. label: the algorithm and its choices, stable between versions: caches are keyed by it.

    build packs the weights; it may be slow.
    """

    label: str
    build: Callable[[], Step]


Algorithm = Callable[[Request], Iterable[Candidate]]

_ALGORITHMS: dict[type[Any], list[Algorithm]] = {}


def algorithm(*operations: type[Any], preferred: bool = False) -> Callable[[Algorithm], Algorithm]:
    """Register a function that yields its candidates for a request, likeliest best first, or none.

    preferred: its candidates come before those of the others, since the first one is taken where nothing is timed.
    """

    def register(function: Algorithm) -> Algorithm:
        for operation in operations:
            known = _ALGORITHMS.setdefault(operation, [])
            if function in known:
                raise RegistryError(f"{function.__qualname__} is registered twice for {operation.__name__}")
            known.insert(0 if preferred else len(known), function)
        return function

    return register


def candidates(request: Request) -> Sequence[Candidate]:
    """Every candidate for a request; none where torch must run it."""
    found = [each for function in _ALGORITHMS.get(type(request.operation), ()) for each in function(request)]
    labels = [each.label for each in found]
    if len(labels) != len(set(labels)):
        raise RegistryError(f"two candidates have one label: {sorted(labels)}")
    return found
