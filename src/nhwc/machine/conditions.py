"""The conditions of a measurement, kept with its samples."""

from __future__ import annotations

import platform

import torch

from nhwc.machine.allocators import allocator_name
from nhwc.machine.cores import available_cores
from nhwc.machine.environment import environment
from nhwc.machine.settings import environment_settings, torch_settings
from nhwc.machine.sources import Sources
from nhwc.machine.versions import versions
from nhwc.timing import Conditions


def conditions(device: torch.device | str = "cpu", sources: Sources | None = None) -> Conditions:
    """Where and how something is measured on ``device``, as it is now; nothing is changed."""
    device, sources = torch.device(device), sources or Sources()
    place = environment(device)
    return Conditions(
        device=place.device,
        processor=place.processor,
        cores=available_cores(sources),
        threads=place.threads,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        allocator=_allocator(device, sources),
        versions=versions(),
        settings=(*torch_settings(device), *environment_settings(sources.environ)),
    )


def _allocator(device: torch.device, sources: Sources) -> str:
    if device.type != "cuda" or not torch.cuda.is_available():
        return allocator_name(sources)
    backend = torch.cuda.memory.get_allocator_backend()
    return "CUDA caching allocator" if backend == "native" else str(backend)
