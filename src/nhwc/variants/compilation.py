"""``torch.compile`` as a part of variants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup


@part("compile", Kind.COMPILATION, "compiled by torch.compile with its defaults")
def compile_(setup: Setup) -> None:
    """Call what torch.compile makes of the model."""
    setup.call = torch.compile(setup.model)
    if setup.device.type == "cuda":
        setup.during_step.append(_fresh_graph)


@contextlib.contextmanager
def _fresh_graph() -> Iterator[None]:
    """Where the compiler replays CUDA graphs, it must learn that the last step's outputs may be overwritten."""
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    yield
