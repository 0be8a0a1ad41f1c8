"""``torch.compile`` as a part of variants."""

from __future__ import annotations

import torch

from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup


@part("compile", Kind.COMPILATION, "compiled by torch.compile with its defaults")
def compile_(setup: Setup) -> None:
    """Call what torch.compile makes of the model."""
    setup.call = torch.compile(setup.model)
