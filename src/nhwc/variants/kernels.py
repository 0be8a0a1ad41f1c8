"""nhwc's channels-last kernels as a part of variants, switched on around the variant's steps and off for the others."""

from __future__ import annotations

import functools

import torch

from nhwc import kernels
from nhwc.kernels.registry import chosen
from nhwc.variants.registry import Kind, parse, part
from nhwc.variants.setup import Setup


def _no_kernels(device: torch.device) -> str:
    if device.type != "cpu":
        return f"nhwc's kernels replace operators on the CPU, not on {device.type}"
    return ""


def _known(names: tuple[str, ...]) -> None:
    chosen(names)


@part(
    "kernels",
    Kind.MODEL,
    "with nhwc's channels-last kernels, all or the named ones (kernels:pad:cat)",
    _no_kernels,
    formats=("channels_last",),
    check=_known,
)
def kernels_(setup: Setup, *names: str) -> None:
    """Kernels of nhwc.kernels stand in for the operators that lose the format: all, or the named ones."""
    setup.around.append(functools.partial(kernels.use, *names))


def kernels_of(spec: str, device: torch.device) -> tuple[str, ...]:
    """The kernels that are on while the variant ``spec`` runs, by name: its own, and those that are on already."""
    setup = Setup(torch.nn.Identity(), (), {}, device)
    for each in parse(spec, device):
        if each.kind is Kind.MODEL:
            each.apply(setup)
    return setup.kernels_on()
