"""The engine as a variant of its own: inference on the CPU, in channels last."""

from __future__ import annotations

import torch

from nhwc.inference.contents import Origin
from nhwc.inference.making import Wishes, contents_for
from nhwc.inference.module import Engine
from nhwc.machine import processor_name
from nhwc.progress import quiet
from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup


def _no_engine(device: torch.device) -> str:
    return "" if device.type == "cpu" else f"the engine runs on the CPU, not on {device.type}"


@part("engine", Kind.FORMAT, "by nhwc.engine, in evaluation mode", _no_engine, alone=True)
def engine(setup: Setup) -> None:
    """Call what nhwc.engine makes of the model."""
    setup.only_inference = "the engine runs models in evaluation mode; measure it without training"
    setup.model.eval()
    origin = Origin.here(processor_name(), "")
    made = contents_for(setup.model, setup.inputs, setup.keywords, Wishes(), "", origin, quiet)
    setup.call = Engine(setup.model, made.specializations)
