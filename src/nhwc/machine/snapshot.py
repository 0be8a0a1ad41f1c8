"""Everything that the checks look at, read once: a made-up machine is a Snapshot with other values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nhwc.health import AllocatorGain
from nhwc.machine.allocators import allocator_name, preloadable
from nhwc.machine.build import Build, build
from nhwc.machine.cgroups import Limits, limits
from nhwc.machine.cores import Cores, cores
from nhwc.machine.gpu import Gpu, gpu
from nhwc.machine.mapped import huge_pages, openmp_runtimes
from nhwc.machine.norms import instance_norm_errs
from nhwc.machine.processor import instruction_flags, processor_name
from nhwc.machine.settings import torch_settings
from nhwc.machine.sources import Sources
from nhwc.timing import Load


@dataclass(frozen=True)
class CompiledKernels:
    """instruction_set: of the library in use, empty where there is none. reason: why there is none, or a limit.

    lost: (kernel, what it loses without the library) for each that loses anything.
    """

    instruction_set: str
    reason: str
    lost: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GpuKernels:
    """has_triton: whether it can be imported. names: of the kernels that need it on a GPU."""

    has_triton: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Snapshot:
    """A machine, its torch and this process at one moment.

    flags: instruction sets as Linux names them, empty where the system does not tell. capability: ATen's instruction
    set. onednn_isa: oneDNN's, as it says itself; empty where it was not asked or did not answer.
    settings: of torch by name, see nhwc.machine.settings. flushes_denormals: on the calling thread.
    load: what other processes did during a second; None where it was not looked at, or the system does not tell.
    kernels, gpu_kernels: nhwc's own, of which the caller tells; None where it does not.
    instance_norm_errs: whether torch's gives wrong gradients, see nhwc.machine.norms.
    has_driver: whether the machine has a driver of NVIDIA's, with or without a torch that can use it.
    """

    system: str
    processor: str
    flags: frozenset[str]
    environ: Mapping[str, str]
    cores: Cores
    limits: Limits
    threads: int
    build: Build
    capability: str
    allocator: str
    onednn_isa: str = ""
    openmp: tuple[str, ...] = ()
    preloadable: tuple[Path, ...] = ()
    huge_pages: str = ""
    flushes_denormals: bool = False
    has_driver: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    gain: AllocatorGain = field(default_factory=AllocatorGain)
    load: Load | None = None
    kernels: CompiledKernels | None = None
    gpu_kernels: GpuKernels | None = None
    instance_norm_errs: bool = False


def snapshot(device: torch.device, sources: Sources | None = None) -> Snapshot:
    """This machine as it is; oneDNN's instruction set and the allocator's gain are for the caller to fill in.

    device: the GPU to look at too, or the CPU for none.
    """
    sources = sources or Sources()
    settings = dict(torch_settings(torch.device("cpu")))
    found = gpu(device)
    if found is not None:
        settings |= torch_settings(device)
    return Snapshot(
        system=sources.system,
        processor=processor_name(),
        flags=instruction_flags(),
        environ=sources.environ,
        cores=cores(sources),
        limits=limits(sources),
        threads=torch.get_num_threads(),
        build=build(),
        capability=torch.backends.cpu.get_cpu_capability(),
        allocator=allocator_name(sources),
        openmp=openmp_runtimes(sources),
        preloadable=preloadable(sources),
        huge_pages=huge_pages(sources),
        flushes_denormals=sys.float_info.min / 2.0 == 0.0,
        has_driver=(sources.proc / "driver" / "nvidia" / "version").exists(),
        settings=settings,
        gpu=found,
        instance_norm_errs=instance_norm_errs(),
    )
