"""Which module makes a tensor and which modules read it, from the forward calls of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from nhwc.model import Call, Phase, TensorMeta, Trace
from nhwc.strides import LayoutKind, layout

_RANKS = (4, 5)
#: What a layout says of the format; all other kinds say nothing.
_FORMAT_OF = {LayoutKind.CONTIGUOUS: 0, LayoutKind.CHANNELS_LAST: 1, LayoutKind.CHANNELS_LAST_3D: 1}


@dataclass
class Value:
    """What one module wrote to one memory, and what other modules made of it.

    producer: a module's path, None for an input of the step. meta: the tensor of rank 4 or 5 as it was made.
    consumers: paths of the other modules that read it, in the order of first use. writers: those that write to it.
    """

    producer: str | None
    meta: TensorMeta
    consumers: list[str] = field(default_factory=list)
    writers: set[str] = field(default_factory=set)

    @property
    def label(self) -> int | None:
        """0 for contiguous, 1 for channels last, None where the tensor is neither or both."""
        return _FORMAT_OF.get(layout(self.meta.shape, self.meta.strides).kind)


@dataclass(frozen=True)
class Flow:
    """The values of a trace that other modules read; modules: path → its calls, all phases but the optimizer's.

    outside: those that are not the model's own, as a loss.
    """

    values: tuple[Value, ...]
    modules: Mapping[str, tuple[Call, ...]]
    outside: frozenset[str] = frozenset()

    @property
    def containers(self) -> frozenset[str]:
        """Modules with operator calls of their own and of modules below them."""
        paths = {""} if len(self.modules) > 1 else set()
        for path in self.modules:
            parts = path.split(".")
            paths |= {".".join(parts[:length]) for length in range(1, len(parts))}
        return frozenset(paths & self.modules.keys())


def flow(trace: Trace, own: Collection[str] | None = None) -> Flow:
    """The modules of ``trace`` and the tensors between them.

    own: paths of the model's modules, None where all are. A module's memory goes by its last writer; views go with the
    memory that they share; parameters are nobody's.
    """
    modules: dict[str, list[Call]] = defaultdict(list)
    current = {meta.storage: Value(None, meta) for meta in trace.inputs if len(meta.shape) in _RANKS}
    values = list(current.values())
    for call in trace.calls:
        if call.phase is not Phase.OPTIMIZER:
            modules[call.module].append(call)
        if call.phase is Phase.FORWARD:
            _read(call, current)
            values += _written(call, current)
    kept = tuple(value for value in values if value.consumers)
    outside = frozenset(path for path in modules if own is not None and path not in own)
    return Flow(kept, {path: tuple(calls) for path, calls in modules.items()}, outside)


def _read(call: Call, current: Mapping[int, Value]) -> None:
    for place, meta in enumerate(call.inputs):
        value = current.get(meta.storage)
        if value is None or value.producer == call.module:
            continue
        if call.module not in value.consumers:
            value.consumers.append(call.module)
        if place in call.mutates:
            value.writers.add(call.module)


def _written(call: Call, current: dict[int, Value]) -> Iterable[Value]:
    """New values, which become their memories' current ones."""
    if call.view:
        return
    mutated = {call.inputs[place].storage for place in call.mutates}
    for meta in call.outputs:
        old = current.get(meta.storage)
        if old is not None and meta.storage in mutated:
            meta = old.meta  # noqa: PLW2901 the whole memory, where a slice of it was written
        if len(meta.shape) in _RANKS:
            value = Value(call.module, meta)
            current[meta.storage] = value
            yield value


def labelled(contiguous: Flow, channels_last: Flow) -> tuple[Value, ...]:
    """The values that are contiguous in the one flow and channels last in the other, with the readers of both.

    Values of one producer are matched by their order; where their number or shapes differ, the formats lead to other
    calls there, and no conversion is planned.
    """
    theirs: dict[str | None, list[Value]] = defaultdict(list)
    ours: dict[str | None, list[Value]] = defaultdict(list)
    for values, found in ((contiguous.values, ours), (channels_last.values, theirs)):
        for value in values:
            found[value.producer].append(value)
    matched = []
    for producer, found_here in ours.items():
        if [value.meta.shape for value in found_here] != [value.meta.shape for value in theirs[producer]]:
            continue
        for one, other in zip(found_here, theirs[producer], strict=True):
            if (one.label, other.label) == (0, 1):
                consumers = list(dict.fromkeys([*one.consumers, *other.consumers]))
                matched.append(Value(producer, one.meta, consumers, one.writers | other.writers))
    return tuple(matched)
