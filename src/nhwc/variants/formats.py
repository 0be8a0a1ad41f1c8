"""Memory formats as parts of variants: model, optimizer state and inputs in one format, or all as they were given."""

from __future__ import annotations

from typing import Any, cast

from nhwc.conversion import bring, convert
from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup


@part("as_is", Kind.FORMAT, "model and inputs in the formats they were given in")
def as_is(setup: Setup) -> None:
    """Leave everything as it was given."""
    del setup


@part("channels_last", Kind.FORMAT, "weights and inputs in channels last (N, H, W, C; volumes N, D, H, W, C)")
def channels_last(setup: Setup) -> None:
    """Weights of convolutions and 4-D and 5-D floating inputs in channels last."""
    _everything(setup, "auto")


@part("contiguous", Kind.FORMAT, "weights and inputs contiguous (N, C, H, W; volumes N, C, D, H, W)")
def contiguous(setup: Setup) -> None:
    """Weights of convolutions and 4-D and 5-D floating inputs contiguous."""
    _everything(setup, "contiguous")


def _everything(setup: Setup, memory_format: str) -> None:
    convert(setup.model, memory_format, optimizer=setup.optimizer)
    setup.inputs = cast(tuple[Any, ...], bring(setup.inputs, memory_format))
    setup.keywords = cast(dict[str, Any], bring(setup.keywords, memory_format))
