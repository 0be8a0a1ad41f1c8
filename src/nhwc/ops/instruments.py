"""What a survey asks of an operator, and what it looks through: interfaces that those above fill in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from nhwc.model import InnerCopy
from nhwc.operators import Speed
from nhwc.ops.case import Case


class Operator(Protocol):
    """What can be surveyed: torch's database and our own samples are."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def is_comparable(self) -> bool: ...
    def cases(self, dims: int, dtype: torch.dtype, device: str) -> list[Case]: ...
    def edges(self, cases: Sequence[Case], dims: int) -> Iterator[tuple[str, Case]]: ...
    def large(self, cases: Sequence[Case], dims: int) -> Case | None: ...


class Watch(Protocol):
    """Sees the copies that run inside operators: one recording of several marked calls."""

    def running(self) -> AbstractContextManager[object]: ...
    def mark(self, index: int) -> AbstractContextManager[object]: ...
    def copies(self, index: int) -> Sequence[InnerCopy]: ...


#: Measures a case in both formats: (case, with its backward pass) → Speed, or why there is none.
Race = Callable[[Case, bool], Speed | str]
#: Names what serves cases in channels last instead of torch's own kernels.
Serving = Callable[[Sequence[Case]], tuple[str, ...]]


def _nothing(_cases: Sequence[Case]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Instruments:
    """One watch for each row, what measures, where speed is asked for, and what names the kernels that there are.

    trains: whether forward and backward are measured together too.
    """

    watch: Callable[[], Watch]
    race: Race | None = None
    trains: bool = True
    serving: Serving = _nothing
