"""The GPU that torch would use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nhwc.machine.versions import cudnn_version


@dataclass(frozen=True)
class Gpu:
    """One CUDA device. capability: its compute capability, (8, 0) for an A100. cudnn: version, empty without cuDNN.

    allocator: torch's backend, "native" or "cudaMallocAsync". architectures: those that torch was compiled for.
    """

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    cudnn: str
    allocator: str
    architectures: tuple[str, ...]


def gpu(device: torch.device) -> Gpu | None:
    """The GPU behind a device, None where it is none or none can be used."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(device)
    return Gpu(
        properties.name,
        (properties.major, properties.minor),
        properties.total_memory,
        cudnn_version(),
        str(torch.cuda.memory.get_allocator_backend()),
        tuple(torch.cuda.get_arch_list()),
    )
