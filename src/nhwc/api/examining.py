"""The verb doctor: facts about the machine, judged, with a short measurement of the allocator."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nhwc.api.showing import Showing
from nhwc.errors import TargetError
from nhwc.health import AllocatorGain, Health
from nhwc.kernels import gpu, kernels, native
from nhwc.machine import ChildError, LoadMeter, Sources, allocation, checks, environment, snapshot
from nhwc.machine.snapshot import CompiledKernels, GpuKernels
from nhwc.measure.stats import paired_ratio
from nhwc.progress import Progress, quiet
from nhwc.report.health import headline
from nhwc.timing import Load

_LOOK_S = 1.0
_ISA = re.compile(r",info,cpu,isa:([^,\n]+)")


@dataclass(frozen=True)
class HealthReport(Showing, Health):
    """Facts that show themselves: in a terminal, in a notebook, and in a file (.json or .txt)."""

    _kind = "doctor"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {headline(self)}>"


def doctor(
    device: torch.device | str | None = None, *, quick: bool = False, progress: Progress | None = None
) -> HealthReport:
    """What decides the speed of memory formats on this machine, each fact judged, with a line on what to do.

    device: the GPU to look at beside the processor; None for the first one where there is one, "cpu" for none.
    quick: leave out the measurement of the allocator, which takes about ten seconds. Child processes run a convolution
    either way, to hear which instruction set oneDNN uses. progress: called with (stage, done, total).
    Nothing in this process is changed. Raises TargetError for a device that is not here or of another kind.
    """
    start = time.monotonic()
    place, sources = _place(device), Sources()
    say = progress or quiet
    say("looking around", 0, 2)
    found = replace(snapshot(place, sources), kernels=_compiled_kernels(), gpu_kernels=_gpu_kernels())
    found = replace(found, load=_other_load())
    say("asking oneDNN" if quick else "measuring the allocator", 1, 2)
    gain, lines = _asked(sources) if quick else _measured(sources)
    found = replace(found, gain=gain, onednn_isa=isa(lines))
    facts = checks.facts(found)
    say("done", 2, 2)
    return HealthReport(environment(place), facts, gain, time.monotonic() - start)


def _other_load() -> Load | None:
    """What other processes do while this one waits a second."""
    meter = LoadMeter()
    time.sleep(_LOOK_S)
    return meter.read(torch.get_num_threads())


def _compiled_kernels() -> CompiledKernels:
    status = native.status()
    lost = tuple((each.name, each.native) for each in kernels() if each.native)
    return CompiledKernels(status.instruction_set, status.reason, lost)


def _gpu_kernels() -> GpuKernels:
    names = tuple(each.name for each in kernels() if any(one.where is gpu.has_triton for one in each.replacements))
    return GpuKernels(gpu.has_triton(), names)


def isa(lines: Sequence[str]) -> str:
    """The instruction set in what oneDNN prints of itself, "" where it is not there.

    >>> isa(["onednn_verbose,v1,info,cpu,isa:Intel AVX2"])
    'Intel AVX2'
    """
    found = _ISA.search("\n".join(lines))
    return found[1].strip() if found else ""


def _place(device: torch.device | str | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise TargetError(f"{device!r} is no device; write cpu, cuda or cuda:1") from error
    if place.type not in ("cpu", "cuda"):
        raise TargetError(f"the doctor knows processors and CUDA devices, not {place.type}; write cpu, cuda or cuda:1")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if place.type == "cuda" and (place.index or 0) >= count:
        raise TargetError(
            f"there is no device {place}: torch sees {count} GPUs here; leave the device out, or write cpu"
        )
    return place


def _asked(sources: Sources) -> tuple[AllocatorGain, Sequence[str]]:
    gain = AllocatorGain(failure="run nhwc doctor without --quick to measure it")
    try:
        return gain, allocation.look(sources)["onednn"]
    except ChildError:
        return gain, ()


def _measured(sources: Sources) -> tuple[AllocatorGain, Sequence[str]]:
    chosen = allocation.contest(sources)
    if chosen is None:  # nothing to preload: not a failure
        _, lines = _asked(sources)
        return AllocatorGain(), lines
    try:
        samples, said = allocation.measure(chosen)
    except ChildError as error:
        return AllocatorGain(failure=f"the measurement failed: {error}"), _asked(sources)[1]
    gain = AllocatorGain(
        samples.plain,
        samples.other,
        samples.setting,
        paired_ratio(samples.plain_ms, samples.other_ms),
        samples.plain_ms,
        samples.other_ms,
        statistics.median(samples.plain_faults),
        statistics.median(samples.other_faults),
    )
    return gain, said["onednn"]
