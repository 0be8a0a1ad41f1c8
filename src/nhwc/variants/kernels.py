"""nhwc's channels-last kernels as a part of variants, switched on around the variant's steps and off for the others."""

from __future__ import annotations

import torch

from nhwc import kernels
from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup


def _no_kernels(device: torch.device) -> str:
    if device.type != "cpu":
        return f"nhwc's kernels replace operators on the CPU, not on {device.type}"
    return ""


@part("kernels", Kind.MODEL, "with nhwc's channels-last kernels", _no_kernels, formats=("channels_last",))
def kernels_(setup: Setup) -> None:
    """Every kernel of nhwc.kernels stands in for the operator that loses the format."""
    setup.around.append(kernels.use)
