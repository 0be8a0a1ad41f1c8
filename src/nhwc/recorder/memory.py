"""The most memory that a step holds in tensors at once.

Private interface, read from torch 2.11 to 2.14: ``profiler.kineto_results.events()``, whose "[memory]" events carry
the bytes of each allocation (below 0: of each release) of the CPU allocator. Where it is missing the answer is None.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity

from nhwc.recorder.output import captured
from nhwc.recorder.profiling import profiling, without_noise


def peak_bytes(step: Callable[[], object], device: torch.device) -> int | None:
    """Bytes of tensors at the fullest moment of one run of ``step``, above what there was before it.

    On the CPU the allocations that pass torch's allocator are counted, whatever malloc makes of them; scratch memory
    inside libraries is not among them. On a GPU it is the caching allocator's own count. None where another profiler
    runs, or where the device cannot be asked.
    """
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu" or torch._C._autograd._profiler_enabled():
        return None
    with profiling(activities=[ProfilerActivity.CPU], profile_memory=True) as profile, captured(2, without_noise):
        step()  # the allocator warns at the first block that is older than the profile
    results = getattr(profile.profiler, "kineto_results", None)
    if results is None:
        return None
    events = sorted((e for e in results.events() if e.name() == "[memory]"), key=lambda event: event.start_ns())
    held = peak = 0
    for event in events:
        held += event.nbytes()
        peak = max(peak, held)
    return peak
