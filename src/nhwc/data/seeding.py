"""Random numbers that depend on what is drawn, not on who draws it or when."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(*parts: int) -> int:
    """64 bits that depend on all ``parts`` and on their order.

    >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
    (True, False)
    """
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def seed_all(seed: int) -> None:
    """Seed the generators that transforms draw from on the CPU: torch's, Python's, and NumPy's where it is loaded."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


@contextmanager
def isolated() -> Iterator[None]:
    """What is drawn or seeded inside leaves the three generators as they were."""
    numpy = sys.modules.get("numpy")
    state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
