"""Which models of which suite are measured in which mode."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from nhwc.errors import RegistryError
from nhwc.suite import Suite, SuiteModel
from nhwc.suites.tutorial import TUTORIAL

MODES = ("inference", "training")
_SUITES = {suite.name: suite for suite in (TUTORIAL,)}


@dataclass(frozen=True, slots=True)
class Job:
    """One model in one mode."""

    model: SuiteModel
    mode: str

    @property
    def name(self) -> str:
        """What it is called in sentences and in files: "resnet50 training", "resnet50.training"."""
        return f"{self.model.name} {self.mode}"


def known_suites() -> tuple[str, ...]:
    """Names of the suites that there are."""
    return tuple(sorted(_SUITES))


def suite_named(name: str) -> Suite:
    """The suite of that name. Raises RegistryError naming the known ones.

    >>> len(suite_named("tutorial").models)
    34
    """
    if name not in _SUITES:
        raise RegistryError(f"there is no suite {name!r}; the known ones are {', '.join(known_suites())}")
    return _SUITES[name]


def jobs(suite: Suite, models: Sequence[str] = (), modes: Sequence[str] = ()) -> tuple[Job, ...]:
    """A job for each model in each mode, in the order of the suite; nothing named is everything.

    Raises RegistryError for a model or a mode that there is not, with what there is.
    """
    known = [model.name for model in suite.models]
    for name in models:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise RegistryError(f"the suite {suite.name} has no model {name!r}; {hint}")
    for mode in modes:
        if mode not in MODES:
            raise RegistryError(f"there is no mode {mode!r}; the modes are {' and '.join(MODES)}")
    chosen = [model for model in suite.models if not models or model.name in models]
    return tuple(Job(model, mode) for model in chosen for mode in MODES if not modes or mode in modes)
