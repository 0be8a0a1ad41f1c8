"""Which kernels of ``nhwc.kernels`` answer a case in channels last: they are asked, on the samples themselves."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nhwc.kernels import kernels, use
from nhwc.ops.attempt import attempt
from nhwc.ops.case import Case


def serving(cases: Sequence[Case]) -> tuple[str, ...]:
    """The kernels that answer in a case's forward or backward pass, sorted; one that steps aside does not count.

    Switches all kernels on for as long as it runs, and off unless they were on before.
    """
    names: set[str] = set()
    heard = [False]

    @contextlib.contextmanager
    def listening(_direction: str) -> Iterator[None]:
        heard[0] = True
        try:
            yield
        finally:
            heard[0] = False

    with _noting(lambda name: names.add(name) if heard[0] else None):
        for case in cases:
            attempt(case, channels_last=True, mark=listening)
    return tuple(sorted(names))


@contextlib.contextmanager
def _noting(answered: Callable[[str], object]) -> Iterator[None]:
    """All kernels on, and ``answered(name)`` called whenever one answers instead of stepping aside."""
    every = kernels()
    before = [list(each.replacements) for each in every]
    for each in every:
        each.replacements[:] = [
            replace(one, run=_noted(one.run, functools.partial(answered, each.name))) for one in each.replacements
        ]
    try:
        with use():
            yield
    finally:
        for each, replacements in zip(every, before, strict=True):
            each.replacements[:] = replacements


def _noted(run: Callable[..., Any], answered: Callable[[], object]) -> Callable[..., Any]:
    @functools.wraps(run)
    def noted(*operands: Any, **options: Any) -> Any:
        result = run(*operands, **options)
        if result is not NotImplemented:
            answered()
        return result

    return noted
