"""Where a trace was taken: versions, device, processor, threads."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from nhwc.machine.processor import processor_name
from nhwc.model import Environment


def environment(device: torch.device | str = "cpu") -> Environment:
    """The environment of a step on ``device``."""
    device = torch.device(device)
    # a static trace may speak of a GPU that is not here
    name = torch.cuda.get_device_name(device) if device.type == "cuda" and torch.cuda.is_available() else ""
    try:
        version = metadata.version("nhwc")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return Environment(
        str(torch.__version__),
        platform.python_version(),
        f"{device.type} {name}".strip(),
        processor_name(),
        torch.get_num_threads(),
        version,
    )
