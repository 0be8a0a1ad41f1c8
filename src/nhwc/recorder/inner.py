"""Level two: copies made inside a kernel, and the composite operator that a call belongs to.

While the dispatcher's mode handles a call, the operators that the kernel itself calls are visible to the profiler
only. Every call is bracketed by a marker; the markers are found again in the profiler's event tree, whose operator
events carry shapes, strides and storage addresses.

Private interfaces, read from torch 2.11 to 2.14: torch._C._profiler._RecordFunctionFast and the event tree of
``kineto_results.experimental_event_tree()`` (name, children, typed, duration_time_ns, inputs with sizes, strides,
dtype, storage_data_ptr). ``missing()`` says what this torch lacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from nhwc.model import InnerCopy, Reorder, TensorMeta
from nhwc.recorder.cuda import layout_kernels
from nhwc.recorder.profiling import profiling

MARK = "nhwc#"


def missing() -> str | None:
    """A sentence when the interfaces this file reads are not there, else None."""
    if not hasattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast"):
        lacks = f"torch {torch.__version__} lacks torch._C._profiler._RecordFunctionFast"
        return f"{lacks}: copies inside kernels cannot be seen"
    return None


def marker(index: int) -> contextlib.AbstractContextManager[Any]:
    """Brackets the call with that index for the profiler."""
    return torch._C._profiler._RecordFunctionFast(f"{MARK}{index}")


@dataclass
class Inside:
    """What the profiler saw of one call: its duration in ms, its caller, and the copies its kernel made."""

    ms: float | None = None
    caller: str = ""
    copies: list[tuple[InnerCopy, int, int]] = field(default_factory=list)
    reorders: list[Reorder] = field(default_factory=list)


class KernelProfiler:
    """Profiles a step and reads ``insides``: call index → Inside. ``roots`` is the event tree.

    device: where the step runs; on a GPU its kernels are profiled too, for those that change a layout.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self.insides: dict[int, Inside] = {}
        self.error: str | None = None
        self.roots: list[Any] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Profile the body; a profiler that is already running leaves ``error`` set and the body unprofiled."""
        self.error = missing()
        if self.error is None and torch._C._autograd._profiler_enabled():
            self.error = "another profiler is running: copies inside kernels cannot be seen"
        if self.error is not None:
            yield
            return
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        with profiling(activities=activities, record_shapes=True) as profile:
            yield
        self._read(profile)

    def _read(self, profile: torch.profiler.profile) -> None:
        results = getattr(profile.profiler, "kineto_results", None)
        tree = getattr(results, "experimental_event_tree", None)
        if tree is None:
            self.error = f"torch {torch.__version__} gives no event tree: copies inside kernels cannot be seen"
            return
        kernels = layout_kernels(results.events()) if self._on_gpu and results is not None else {}
        # explicit stack: a deep graph must not meet Python's recursion limit
        self.roots = list(tree())
        pending: list[tuple[Any, str]] = [(event, "") for event in self.roots]
        while pending:
            event, caller = pending.pop()
            name = event.name
            if name.startswith(MARK):
                self.insides[int(name[len(MARK) :])] = look_inside(event, caller, kernels)
                continue
            if not caller and "::" in name and not name.startswith(("autograd::", "torch::autograd")):
                caller = name
            pending.extend((child, caller) for child in event.children)


def look_inside(event: Any, caller: str = "", kernels: Mapping[int, Sequence[Reorder]] | None = None) -> Inside:
    """Duration, caller and copies of what runs below ``event``; ``kernels``: reorders by correlation id."""
    inside = Inside(caller=caller)
    operators = list(event.children)
    if operators:
        inside.ms = sum(child.duration_time_ns for child in operators) / 1e6
        inside.caller = inside.caller or operators[0].name
    pending = operators
    while pending:
        child = pending.pop()
        if child.name == "aten::copy_":
            copied = _copy_of(child)
            if copied is not None:
                inside.copies.append(copied)
        if kernels:
            inside.reorders += kernels.get(child.correlation_id, ())
        pending.extend(child.children)
    inside.copies.reverse()
    return inside


def _copy_of(event: Any) -> tuple[InnerCopy, int, int] | None:
    """(copy, address of its target's storage, address of its source's storage) for tensors of rank 3 and more."""
    tensors = [value for value in event.typed[1].inputs if hasattr(value, "strides")]
    if len(tensors) < 2 or len(tensors[0].sizes) < 3 or list(tensors[0].sizes) != list(tensors[1].sizes):
        return None
    target, source = tensors[0], tensors[1]
    copied = InnerCopy(_outermost_copy(event), event_meta(source), event_meta(target), event.duration_time_ns / 1e6)
    return copied, target.storage_data_ptr or 0, source.storage_data_ptr or 0


def _outermost_copy(event: Any) -> str:
    """The name a reader knows: contiguous or clone rather than the copy_ at the bottom of it."""
    name = event.name
    parent = event.parent
    while parent is not None and parent.name in (
        "aten::clone",
        "aten::contiguous",
        "aten::to",
        "aten::_to_copy",
        "aten::reshape",
    ):
        name = parent.name
        parent = parent.parent
    return str(name)


def event_meta(value: Any) -> TensorMeta:
    """A tensor as the profiler saw it; its storage is not identified."""
    dtype = value.dtype
    return TensorMeta(
        tuple(value.sizes),
        tuple(value.strides),
        str(dtype).removeprefix("torch."),
        str(value.device),
        storage=-1,
        offset=0,
        itemsize=dtype.itemsize,
    )
