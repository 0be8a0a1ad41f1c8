"""Made-up traces: calls of modules on tensors that are named by their memory."""

from __future__ import annotations

from nhwc.model import Call, Environment, Phase, TensorMeta, Trace
from nhwc.strides import strides_for

WHERE = Environment("2.14", "3.11", "cpu", "a processor", 2, "0.1")
SHAPE = (2, 8, 4, 4)


def tensor(storage: int, name: str = "contiguous", shape: tuple[int, ...] = SHAPE) -> TensorMeta:
    return TensorMeta(shape, strides_for(shape, name), "float32", "cpu", storage, 0, 4)


class Steps:
    """Calls in turn, all in one format."""

    def __init__(self, name: str = "contiguous") -> None:
        self.name = name
        self.calls: list[Call] = []

    def call(
        self,
        module: str,
        reads: tuple[int, ...],
        writes: int,
        *,
        view: bool = False,
        mutates: tuple[int, ...] = (),
        answers: str = "",
        phase: Phase = Phase.FORWARD,
    ) -> Steps:
        inputs = tuple(tensor(each, self.name) for each in reads)
        outputs = (tensor(writes, answers or self.name),)
        index = len(self.calls)
        made = Call(
            index, "aten.relu.default", "aten::relu", inputs, outputs, phase, module, "Made", None, None, view, mutates
        )
        self.calls.append(made)
        return self

    def trace(self, *inputs: int) -> Trace:
        given = tuple(tensor(each, self.name) for each in inputs)
        return Trace("net", "eager", False, WHERE, tuple(self.calls), given)
