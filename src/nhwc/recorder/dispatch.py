"""Level one: every operator call that reaches the dispatcher, forward and backward.

Private interfaces, read from torch 2.11 to 2.14: torch._C._current_autograd_node (the node whose backward runs),
Node._sequence_nr and torch.autograd._get_sequence_nr (the number by which a backward node names its forward call).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nhwc.model import Call, Phase, Source, TensorMeta
from nhwc.recorder.inner import marker
from nhwc.recorder.modules import ModuleStack
from nhwc.recorder.output import Capture
from nhwc.recorder.source import SourceLines
from nhwc.recorder.storage import StorageIds

_ACCUMULATE = "AccumulateGrad"


@dataclass(slots=True)
class RawCall:
    """A call as seen live: the frozen Call, addresses of its inputs, and where its library output lies."""

    call: Call
    addresses: tuple[int, ...]
    output_start: int = 0
    output_end: int = 0


class CallRecorder(TorchDispatchMode):
    """Records every operator call into ``raw``; keeps no tensor alive."""

    def __init__(self, modules: ModuleStack, names: Callable[[int], str | None], storages: StorageIds, library: Capture | None) -> None:
        super().__init__()
        self.raw: list[RawCall] = []
        self.failed: tuple[int, BaseException] | None = None
        self.phase_override: Phase | None = None
        self.inner = True
        self._modules = modules
        self._name_of = names
        self._storages = storages
        self._library = library
        self._sources = SourceLines()
        self._forward_by_sequence: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        index = len(self.raw)
        inputs: list[torch.Tensor] = []
        arguments = tuple(_encode(value, inputs) for value in args)
        keywords = tuple((key, _encode(value, inputs)) for key, value in kwargs.items())
        before = [self._meta(tensor) for tensor in inputs]
        phase, module, module_type, source, forward = self._place(index)
        call = Call(
            index,
            str(func),
            "",
            tuple(before),
            (),
            phase,
            module,
            module_type,
            source,
            forward,
            mutates=_mutated(func, args, kwargs, inputs),
            arguments=arguments,
            keywords=keywords,
        )
        raw = RawCall(call, tuple(_address(tensor) for tensor in inputs))
        self.raw.append(raw)
        if self._library is not None:
            raw.output_start = self._library.position()
        try:
            with marker(index) if self.inner else contextlib.nullcontext():
                result = func(*args, **kwargs)
        except BaseException as error:
            self.failed = (index, error)
            raise
        if self._library is not None:
            raw.output_end = self._library.position()
        found: list[torch.Tensor] = []
        _encode(result, found)
        outputs = tuple(self._meta(tensor) for tensor in found)
        shared = {meta.storage for meta in before}
        view = bool(outputs) and not call.mutates and all(meta.storage in shared for meta in outputs)
        raw.call = replace(call, outputs=outputs, view=view)
        return result

    def _meta(self, tensor: torch.Tensor) -> TensorMeta:
        storage = self._storages.of(tensor)
        try:
            strides, offset = tuple(tensor.stride()), tensor.storage_offset()
        except (RuntimeError, NotImplementedError):  # sparse, nested and opaque tensors have no strides
            strides, offset = (), 0
        shape = tuple(tensor.shape)
        if len(strides) != len(shape):
            shape, strides = (), ()
        return TensorMeta(
            shape,
            strides,
            str(tensor.dtype).removeprefix("torch."),
            str(tensor.device),
            storage,
            int(offset),
            tensor.element_size(),
            self._name_of(storage),
        )

    def _place(self, index: int) -> tuple[Phase, str, str, Source | None, int | None]:
        """Phase, module path, module type, source line and forward call of the call that runs now."""
        node = torch._C._current_autograd_node()
        running = self._modules.current(in_backward=node is not None)
        module, module_type = running or ("", "")
        if node is None:
            self._forward_by_sequence.setdefault(torch.autograd._get_sequence_nr() - 1, index)  # type: ignore[attr-defined]
            return self.phase_override or Phase.FORWARD, module, module_type, self._sources.current(), None
        if running is not None:  # recomputation under activation checkpointing
            self._forward_by_sequence.setdefault(torch.autograd._get_sequence_nr() - 1, index)  # type: ignore[attr-defined]
            return Phase.BACKWARD, module, module_type, self._sources.current(), None
        variable = getattr(node, "variable", None) if _ACCUMULATE in node.name() else None
        if variable is not None:
            name = self._name_of(self._storages.of(variable)) or ""
            return Phase.BACKWARD, name.rpartition(".")[0], "", self._sources.current(), None
        forward = self._forward_by_sequence.get(node._sequence_nr())
        if forward is None:
            return Phase.BACKWARD, "", "", self._sources.current(), None
        origin = self.raw[forward].call
        return Phase.BACKWARD, origin.module, origin.module_type, origin.source, forward


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _mutated(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: list[torch.Tensor]) -> tuple[int, ...]:
    """Positions among ``inputs`` of the tensors that the schema says are written."""
    schema = func._schema
    if not schema.is_mutable:
        return ()
    written: list[int] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        found: list[torch.Tensor] = []
        _encode(value, found)
        written += [place for place, tensor in enumerate(inputs) if any(tensor is other for other in found)]
    return tuple(sorted(set(written)))


def _encode(value: Any, tensors: list[torch.Tensor]) -> object:
    """An argument as JSON-able data; tensors go to ``tensors`` and leave {"tensor": position}."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0.0 else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [_encode(item, tensors) for item in value]
    if isinstance(value, torch.dtype | torch.device | torch.memory_format | torch.layout):
        return {"torch": type(value).__name__, "value": str(value).removeprefix("torch.")}
    return {"object": type(value).__name__}
