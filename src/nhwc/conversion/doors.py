"""Hooks at a model's door that bring tensors to a memory format on their way in or out.

They are plain picklable objects, so that ``copy.deepcopy`` and ``torch.save`` carry them along. Taking one off a
copied model means finding it again in the module's hook dictionaries, whose names are private: read from torch 2.11
to 2.14.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch
from torch import nn

from nhwc.formats import to_format
from nhwc.strides import CONTIGUOUS, channels_last_for


class InputDoor:
    """A forward pre-hook: every floating 4-D and 5-D tensor among the arguments comes in ``memory_format``."""

    def __init__(self, memory_format: str) -> None:
        self.memory_format = memory_format

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        del module
        return bring(args, self.memory_format), bring(kwargs, self.memory_format)


class OutputDoor:
    """A forward hook: every floating 4-D and 5-D tensor of the result leaves in ``memory_format``."""

    def __init__(self, memory_format: str) -> None:
        self.memory_format = memory_format

    def __call__(self, module: nn.Module, args: tuple[object, ...], output: object) -> object:
        del module, args
        return bring(output, self.memory_format)


def hang_input_door(model: nn.Module, memory_format: str) -> Callable[[], None]:
    """Hang an InputDoor, or change the one that hangs already; the answer undoes it."""
    for hook in model._forward_pre_hooks.values():
        if isinstance(hook, InputDoor):
            return _change(hook, memory_format)
    return model.register_forward_pre_hook(InputDoor(memory_format), with_kwargs=True).remove


def hang_output_door(model: nn.Module, memory_format: str) -> Callable[[], None]:
    """Hang an OutputDoor, or change the one that hangs already; the answer undoes it."""
    for hook in model._forward_hooks.values():
        if isinstance(hook, OutputDoor):
            return _change(hook, memory_format)
    return model.register_forward_hook(OutputDoor(memory_format)).remove


def take_doors_off(model: nn.Module) -> None:
    """Remove both doors, from a copied or unpickled model too."""
    for key in [key for key, hook in model._forward_pre_hooks.items() if isinstance(hook, InputDoor)]:
        del model._forward_pre_hooks[key]
        model._forward_pre_hooks_with_kwargs.pop(key, None)
    for key in [key for key, hook in model._forward_hooks.items() if isinstance(hook, OutputDoor)]:
        del model._forward_hooks[key]


def _change(door: InputDoor | OutputDoor, memory_format: str) -> Callable[[], None]:
    before, door.memory_format = door.memory_format, memory_format

    def undo() -> None:
        door.memory_format = before

    return undo


def _bring(tensor: torch.Tensor, memory_format: str) -> torch.Tensor:
    channels_last = channels_last_for(tensor.dim())
    wanted = channels_last if memory_format == "auto" else memory_format
    if channels_last is None or wanted not in (channels_last, CONTIGUOUS):
        return tensor
    if not tensor.is_floating_point() or tensor.is_nested or tensor.layout is not torch.strided:
        return tensor
    return to_format(tensor, wanted)


def bring(value: object, memory_format: str) -> object:
    """``value`` with every floating 4-D and 5-D tensor in it in ``memory_format`` ("auto": channels last), in lists,
    tuples, mappings and dataclasses too; a container without a changed tensor is returned itself."""
    if isinstance(value, torch.Tensor):
        return _bring(value, memory_format)
    if isinstance(value, list | tuple):
        items = [bring(item, memory_format) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        kind: Callable[..., object] = type(value)
        if hasattr(value, "_fields"):
            return kind(*items)
        # a subclass may take other arguments than its items: it passes as it came
        return kind(items) if type(value) in (list, tuple, torch.Size) else value
    if isinstance(value, Mapping):
        entries = {key: bring(item, memory_format) for key, item in value.items()}
        if all(entries[key] is value[key] for key in entries):
            return value
        if not isinstance(value, MutableMapping):
            return entries
        copied = copy.copy(value)
        copied.update(entries)
        return copied
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        brought = {name: bring(item, memory_format) for name, item in fields.items()}
        changed = {name: item for name, item in brought.items() if item is not fields[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value
