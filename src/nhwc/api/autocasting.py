"""Autocast around a verb: the dtype that was asked for, else that of the caller's own autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nhwc.errors import ModelError


def autocast_dtype(amp: torch.dtype | None, device: torch.device) -> torch.dtype | None:
    """What autocast computes in on ``device``: ``amp``, else what is on around the call; None without autocast.

    Raises ModelError for a dtype that autocast does not take.
    """
    if amp is not None and amp not in (torch.bfloat16, torch.float16):
        raise ModelError(f"amp={amp} is no dtype of autocast; give torch.bfloat16 or torch.float16")
    if amp is None and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return amp


@contextmanager
def under_autocast(amp: torch.dtype | None, device: torch.device) -> Iterator[None]:
    """Everything inside under autocast to ``amp``, None for none.

    Casts of weights are not kept from step to step: a step of the user's makes them too, and the weights may have
    another format by then.
    """
    if amp is None:
        yield
        return
    torch.clear_autocast_cache()
    try:
        with torch.autocast(device.type, dtype=amp, cache_enabled=False):
            yield
    finally:
        torch.clear_autocast_cache()
