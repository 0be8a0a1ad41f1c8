"""The random state of a process, as numbers and tensors that a checkpoint may hold."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of Python's, numpy's (where it is loaded) and torch's generators, the device's too."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, place, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, [int(key) for key in keys], int(place), int(has_gauss), float(cached)]
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what ``random_state`` gave; a generator that it does not hold stays as it is."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        _set_numpy_state(state["numpy"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def _set_numpy_state(state: list[Any]) -> None:
    """Put back numpy's state; a numpy that is not there has none."""
    try:
        import numpy
    except ImportError:
        return
    name, keys, place, has_gauss, cached = state
    numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), place, has_gauss, cached))


@contextmanager
def own_random_state() -> Iterator[None]:
    """Random numbers drawn and generators seeded inside the block leave those behind it as they would have been."""
    before = random_state(torch.device("cpu"))
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        set_random_state(before, torch.device("cpu"))
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's (where it is loaded) and torch's generators, on every device."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
