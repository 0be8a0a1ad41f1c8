"""Hand-made traces: the operator calls of one step, written without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nhwc.model import (
    Call,
    Environment,
    InnerCopy,
    ParameterMeta,
    Phase,
    Reorder,
    Source,
    TensorMeta,
    Trace,
)
from nhwc.strides import strides_for

ENVIRONMENT = Environment("2.14.1", "3.11", "cpu", "", 1, "0")
LAST, FIRST = "channels_last", "contiguous"
SHAPE = (2, 8, 4, 4)


class Step:
    """Writes calls one after another; every tensor gets a storage of its own unless it is made of another.

    >>> step = Step()
    >>> x = step.input((2, 8, 4, 4))
    >>> y = step.call("relu", [x])
    >>> step.trace().calls[0].outputs == (y,)
    True
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inputs: list[TensorMeta] = []
        self.parameters: list[ParameterMeta] = []
        self._storage = 0
        self._line = 0

    # -- tensors -----------------------------------------------------------------------------------------------

    def tensor(
        self,
        shape: Sequence[int] = SHAPE,
        memory_format: str = LAST,
        *,
        strides: Sequence[int] | None = None,
        of: TensorMeta | None = None,
        name: str | None = None,
    ) -> TensorMeta:
        """A tensor in a memory format, or of given strides; ``of``: in the memory of that one."""
        known = "channels_last_3d" if memory_format == LAST and len(shape) == 5 else memory_format
        steps = tuple(strides) if strides is not None else strides_for(shape, known)
        if of is None:
            self._storage += 1
        storage = self._storage if of is None else of.storage
        return TensorMeta(tuple(shape), steps, "float32", "cpu", storage, 0, 4, name)

    def input(self, shape: Sequence[int] = SHAPE, memory_format: str = LAST, **fields: Any) -> TensorMeta:
        """An input of the step."""
        made = self.tensor(shape, memory_format, name=f"input {len(self.inputs)}", **fields)
        self.inputs.append(made)
        return made

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        memory_format: str = LAST,
        *,
        strides: Sequence[int] | None = None,
        gradient: Sequence[int] | None = None,
    ) -> TensorMeta:
        """A parameter; ``gradient``: the strides of its gradient."""
        made = self.tensor(shape, memory_format, strides=strides, name=name)
        held = None if gradient is None else self.tensor(shape, strides=gradient)
        self.parameters.append(ParameterMeta(name, made, held))
        return made

    # -- calls -------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        inputs: Sequence[TensorMeta],
        outputs: TensorMeta | Sequence[TensorMeta] | None = None,
        *,
        caller: str | None = None,
        module: str = "",
        phase: Phase = Phase.FORWARD,
        forward: int | None = None,
        line: int | None = None,
        **fields: Any,
    ) -> TensorMeta:
        """One operator call on a line of its own; answers its first output, by default one like its first input."""
        if outputs is None:
            outputs = self.tensor(inputs[0].shape, strides=inputs[0].strides)
        made = (outputs,) if isinstance(outputs, TensorMeta) else tuple(outputs)
        self._line += 1
        self.calls.append(
            Call(
                len(self.calls),
                f"aten.{name}.default",
                f"aten::{caller or name}",
                tuple(inputs),
                made,
                phase,
                module,
                "",
                Source("/model.py", line or self._line),
                forward,
                **fields,
            )
        )
        return made[0] if made else inputs[0]

    def view(
        self, name: str, source: TensorMeta, shape: Sequence[int], strides: Sequence[int], **fields: Any
    ) -> TensorMeta:
        """A view of ``source``."""
        seen = self.tensor(shape, strides=strides, of=source)
        return self.call(name, [source], seen, view=True, **fields)

    def convolution(
        self,
        x: TensorMeta,
        weight: TensorMeta,
        memory_format: str = LAST,
        *,
        copies: Sequence[InnerCopy] = (),
        reorders: Sequence[Reorder] = (),
        **fields: Any,
    ) -> TensorMeta:
        """A convolution that keeps the spatial size."""
        answer = self.tensor((x.shape[0], weight.shape[0], *x.shape[2:]), memory_format)
        rank = len(x.shape) - 2
        return self.call(
            "convolution",
            [x, weight],
            answer,
            caller=f"conv{rank}d",
            copies=tuple(copies),
            reorders=tuple(reorders),
            **fields,
        )

    def trace(self, **fields: Any) -> Trace:
        """The trace of the calls so far."""
        known = Trace("hand-made", "eager", False, ENVIRONMENT, tuple(self.calls))
        return replace(known, inputs=tuple(self.inputs), parameters=tuple(self.parameters), **fields)


def copied(source: TensorMeta, memory_format: str, operator: str = "aten::clone") -> InnerCopy:
    """A copy of ``source`` inside a kernel, into a new tensor of that format."""
    known = "channels_last_3d" if memory_format == LAST and len(source.shape) == 5 else memory_format
    return InnerCopy(operator, source, replace(source, strides=strides_for(source.shape, known), storage=-1, name=None))
