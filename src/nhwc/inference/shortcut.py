"""The way of most calls: plain tensors to one compiled program, and as little Python as there can be.

Between two calls the caches forget the interpreter: what is looked at here costs several times what it costs in a loop
of its own, and a small network takes a millisecond in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.inference.contents import Ready
from nhwc.inference.frames import Frame
from nhwc.inference.graph import Value
from nhwc.inference.run import Runner


def nested(outputs: list[Any], spec: pytree.TreeSpec) -> Any:
    """Outputs as the model nests them."""
    return outputs[0] if spec.is_leaf() else pytree.tree_unflatten(outputs, spec)


class Shortcuts:
    """Those of an engine's runners. recent: that of the last call that took the long way, None before there is one."""

    def __init__(self) -> None:
        self.recent: Shortcut | None = None
        self._known: dict[Runner, Shortcut | None] = {}

    def follow(self, ready: Ready) -> None:
        """Calls like the one that ``ready`` has answered, all of whose arguments are tensors, go the short way."""
        runner = ready.ready(torch.get_num_threads())
        if runner not in self._known:
            self._known[runner] = Shortcut.of(runner, ready.captured.out_spec)
        self.recent = self._known[runner] or self.recent


class Shortcut:
    """A runner that is one program, reads its inputs where they lie and writes its outputs where they are returned."""

    def __init__(
        self,
        runner: Runner,
        outputs: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]],
        out_spec: pytree.TreeSpec,
    ) -> None:
        ports, program = runner.ports, runner.sections[0].program
        assert program is not None
        self._runner, self._run, self._outputs = runner, program.run, tuple(outputs)
        self._out_spec = out_spec
        places = [place for _value, place in ports.inputs if place is not None]
        self._inputs = tuple((place.buffer.entry, torch.Size(place.shape), place.strides) for place in places)
        self._count = len(self._inputs)

    @classmethod
    def of(cls, runner: Runner, out_spec: pytree.TreeSpec) -> Shortcut | None:
        """None where calls need more: torch's operators, inputs that nothing reads, constants or parts as outputs."""
        ports = runner.ports
        if len(runner.sections) != 1 or runner.sections[0].program is None:
            return None
        if any(place is None for _value, place in ports.inputs):
            return None
        returned = dict(ports.returned)
        outputs = []
        for each in ports.outputs:
            place = ports.places.get(each) if isinstance(each, Value) and each.constant is None else None
            whole = None if place is None else returned.pop(place.buffer, None)
            if place is None or whole is None or (place.shape, place.strides) != (whole.shape, whole.strides):
                return None
            outputs.append((place.buffer.entry, place.shape, place.strides))
        return cls(runner, outputs, out_spec)

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """The outputs, nested; None, with nothing done, for arguments that need another way."""
        runner = self._runner
        if len(tensors) != self._count or torch.get_num_threads() != runner.threads:
            return None
        for tensor, (_entry, shape, strides) in zip(tensors, self._inputs, strict=True):
            if not (
                type(tensor) is torch.Tensor
                and tensor.shape == shape
                and tensor.dtype is torch.float32
                and tensor.is_cpu
                and tensor.layout is torch.strided
                and tensor.stride() == strides
                and not tensor.requires_grad
                and not tensor.is_neg()
            ):
                return None
        frame = runner.take()
        try:
            return nested(self._in(frame, tensors), self._out_spec)
        finally:
            runner.give(frame)

    def _in(self, frame: Frame, tensors: Sequence[torch.Tensor]) -> list[Any]:
        table = frame.table
        for tensor, (entry, _shape, _strides) in zip(tensors, self._inputs, strict=True):
            table[entry] = tensor.data_ptr()
        fresh = []
        for entry, shape, strides in self._outputs:
            tensor = torch.empty_strided(shape, strides, dtype=torch.float32, device="cpu")
            table[entry] = tensor.data_ptr()
            fresh.append(tensor)
        self._run(table, frame.scratch, self._runner.threads)
        return fresh
