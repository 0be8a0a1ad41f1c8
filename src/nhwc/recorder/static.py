"""Fake tensors: a step that computes nothing and holds no data, for models larger than memory.

Private interfaces, read from torch 2.11 to 2.14: torch._subclasses.fake_tensor (FakeTensorMode, FakeTensor and the
exceptions by which they refuse), and of torch._prims_common suggest_memory_format (the format that eager kernels
derive from an operand's strides) and compute_elementwise_output_strides (the order that pointwise kernels derive from
several operands).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from nhwc.errors import RecordingError
from nhwc.strides import CONTIGUOUS, strides_for

LIMITS = (
    "fake tensors compute nothing: times are not measured",
    "copies inside kernels and inside libraries cannot be seen without running the kernels",
)


def fake_mode() -> FakeTensorMode:
    """The mode to build a model and its inputs under for a static audit; real tensors that meet it are converted."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is fake and so has no address."""
    return isinstance(tensor, FakeTensor)


def answer_for_fake(func: Any, args: Sequence[Any]) -> torch.device | None:
    """The device that a fake tensor is asked for, thousands of times a step; None for any other question."""
    if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
        return args[0].fake_device
    return None


def mode_of(model: nn.Module, inputs: Sequence[Any]) -> FakeTensorMode:
    """The mode under which ``model`` was built, else that of an input, else a new one."""
    tensors: list[Any] = [*model.parameters(), *model.buffers()]
    tree_map(tensors.append, list(inputs))
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            return tensor.fake_mode
    return fake_mode()


def to_fake(mode: FakeTensorMode, tree: Any) -> Any:
    """Every real tensor in a nest of containers as a fake one of the same shape, strides, dtype and device."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return mode.from_tensor(value, static_shapes=True)
        return value

    return tree_map(convert, tree)


def fake_state(mode: FakeTensorMode, model: nn.Module) -> dict[str, torch.Tensor]:
    """Fake parameters and buffers by name, for ``torch.func.functional_call``; tied ones stay tied.

    Raises RecordingError for a lazy parameter, which has no shape yet.
    """
    made: dict[int, torch.Tensor] = {}
    state: dict[str, torch.Tensor] = {}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        if is_lazy(tensor):
            raise RecordingError(f"{name!r} is not initialised yet: run the model once before a static recording")
        if id(tensor) not in made:
            fake = to_fake(mode, tensor)
            made[id(tensor)] = fake.detach().requires_grad_(tensor.requires_grad) if tensor.is_leaf else fake
        state[name] = made[id(tensor)]
    return state


def refusal(error: BaseException) -> RecordingError | None:
    """What to tell a user whose step needs numbers that fake tensors do not have, None for any other error."""
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        why = "depends on values that fake tensors do not have"
    elif isinstance(error, UnsupportedOperatorException):
        why = "has no implementation for fake tensors"
    elif isinstance(error, UnsupportedFakeTensorException):
        return RecordingError(f"fake tensors refuse this step: {error.reason}; record it without static")
    else:
        return None
    return RecordingError(
        f"{error.func} {why}: this step cannot be recorded without running it; record it without static"
    )


Strides = tuple[int, ...]
Rule = Callable[[Sequence[torch.Tensor], torch.Tensor], Strides]


def _format_of(operand: int) -> Rule:
    """Eager's result takes the format that its kernel derives from this operand's strides."""
    return lambda inputs, result: strides_for(tuple(result.shape), suggest_memory_format(inputs[operand]))


def _elementwise(*order: int) -> Rule:
    """Eager's result takes its order of dimensions from these operands, the first that settles it."""
    return lambda inputs, _result: tuple(compute_elementwise_output_strides(*(inputs[operand] for operand in order)))


def _contiguous(_inputs: Sequence[torch.Tensor], result: torch.Tensor) -> Strides:
    """Eager answers in contiguous whatever comes in."""
    return strides_for(tuple(result.shape), CONTIGUOUS)


#: Operators whose (first) result, by the fake tensors of torch 2.14, lies in another format than eager's on the CPU,
#: and how eager's lies. tests/recorder/test_static.py holds each against the installed torch, and looks for more.
DISAGREEMENTS: dict[str, Rule] = {
    "native_group_norm": _format_of(0),
    "native_group_norm_backward": _format_of(1),
    "native_batch_norm_backward": _format_of(1),
    "native_layer_norm_backward": _contiguous,
    "channel_shuffle": _format_of(0),
    "native_channel_shuffle": _format_of(0),
    "reflection_pad3d": _format_of(0),
    "replication_pad3d": _format_of(0),
    "reflection_pad2d_backward": _format_of(1),
    "replication_pad2d_backward": _format_of(1),
    "reflection_pad3d_backward": _format_of(1),
    "replication_pad3d_backward": _format_of(1),
    "hardswish_backward": _elementwise(0, 1),
    "roll": _format_of(0),  # a shift by 0 aside, which eager copies to contiguous
    "glu_backward": _contiguous,
    "_log_softmax_backward_data": _contiguous,
}


def eager_strides(func: Any, inputs: Sequence[torch.Tensor], result: torch.Tensor) -> Strides | None:
    """The strides that eager gives the (first) result of ``func`` on the CPU; None where the fake ones are right."""
    rule = DISAGREEMENTS.get(_name_of(func))
    if rule is None or result.device.type != "cpu" or result.dim() not in (4, 5):
        return None
    strides = rule(inputs, result)
    return None if strides == tuple(result.stride()) else strides


def _name_of(func: Any) -> str:
    return str(func.name()).removeprefix("aten::").split(".")[0]


class Correction:
    """Gives a fake result the strides that eager would give it; ``limits`` says where that was done or is not known."""

    def __init__(self) -> None:
        self._corrected: dict[str, None] = {}
        self._unchecked: dict[str, None] = {}

    def __call__(self, func: Any, inputs: Sequence[torch.Tensor], result: Any) -> Any:
        """``result``, or the same with its first tensor in eager's strides."""
        first = result[0] if isinstance(result, tuple) and result else result
        if not isinstance(first, torch.Tensor):
            return result
        if first.device.type not in ("cpu", "meta"):
            self._unchecked.setdefault(first.device.type)
        strides = eager_strides(func, inputs, first)
        if strides is None:
            return result
        self._corrected.setdefault(_name_of(func))
        restrided = first.new_empty_strided(tuple(first.shape), strides)
        return (restrided, *result[1:]) if isinstance(result, tuple) else restrided

    def limits(self) -> list[str]:
        """Sentences for the trace."""
        found = [
            f"whether eager on {device} gives the formats that fake tensors promise is not checked"
            for device in self._unchecked
        ]
        if self._corrected:
            names = ", ".join(self._corrected)
            found.append(
                f"fake tensors promise another format than eager gives for {names}: corrected to eager's on the CPU"
            )
        return found
