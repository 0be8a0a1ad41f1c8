"""The child of the allocator measurement: a small step with large outputs, the widest block of mobilenet_v2 at batch 8.

Run as a module; it answers {"hello": true} and {"block": STEPS} over pipes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from nhwc.machine.allocators import allocator_name
from nhwc.machine.child import serve


def make_step() -> Callable[[], torch.Tensor]:
    """Convolutions and an activation in channels last that write 90 MB a step."""
    x, expand, project = (
        torch.randn(shape).to(memory_format=torch.channels_last)
        for shape in ((8, 32, 112, 112), (96, 32, 1, 1), (32, 96, 1, 1))
    )
    return lambda: torch.conv2d(torch.relu(torch.conv2d(x, expand)), project)


def minor_faults() -> int:
    """Pages that the kernel had to hand to this process so far; 0 where the system does not count them."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def onednn_lines(step: Callable[[], object]) -> list[str]:
    """The "info" lines that oneDNN prints when it is first asked to be verbose."""
    switch = getattr(getattr(torch._C, "_verbose", None), "mkldnn_set_verbose", None)
    if switch is None or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return []
    kept = os.dup(1)
    with tempfile.TemporaryFile() as caught:
        try:
            os.dup2(caught.fileno(), 1)
            switch(1)
            step()
        finally:
            switch(0)
            os.dup2(kept, 1)
            os.close(kept)
        caught.seek(0)
        lines = caught.read().decode("ascii", "replace").splitlines()
    return [line for line in lines if ",info," in line]


def block(step: Callable[[], object], steps: int) -> dict[str, float]:
    """Milliseconds and minor page faults per step, over so many."""
    faults, start = minor_faults(), time.perf_counter_ns()
    for _ in range(steps):
        step()
    return {"ms": (time.perf_counter_ns() - start) / 1e6 / steps, "faults": (minor_faults() - faults) / steps}


def main() -> None:
    """Serve until the pipe closes."""
    torch.set_grad_enabled(False)
    step = make_step()

    def answer(question: Any) -> object:
        if "block" in question:
            return block(step, int(question["block"]))
        return {
            "allocator": allocator_name(),
            "onednn": onednn_lines(step),
            "capability": torch.backends.cpu.get_cpu_capability(),
        }

    serve(answer)


if __name__ == "__main__":
    main()
