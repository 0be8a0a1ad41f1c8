"""What a converted model remembers.

The original strides live in an attribute of the module as plain data: they must travel through ``copy.deepcopy`` and
``torch.save``, where a table keyed by the module object would be left behind. What belongs to the living objects only
(hook handles on optimizers and on parameters) lives in a weak table here: it must neither travel nor keep them alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nhwc.conversion.image_states import ImageStates
from nhwc.conversion.moves import apply, same_bytes
from nhwc.conversion.optimizers import follow_parameters
from nhwc.conversion.plan import plan_conversion

ATTRIBUTE = "_nhwc_conversion"


@dataclass(frozen=True)
class Record:
    """The format asked for, names that ``also`` matched, and by name the shape and strides each tensor had before.

    formats: by name, the format of each tensor that was asked for in another one.
    """

    memory_format: str
    also: tuple[str, ...]
    originals: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    formats: dict[str, str] = field(default_factory=dict)


@dataclass
class _Handles:
    optimizers: list[tuple[weakref.ref[Optimizer], list[RemovableHandle]]] = field(default_factory=list)
    gradients: dict[str, tuple[weakref.ref[torch.Tensor], RemovableHandle]] = field(default_factory=dict)


_handles: weakref.WeakKeyDictionary[nn.Module, _Handles] = weakref.WeakKeyDictionary()


def read(model: nn.Module) -> Record | None:
    """The record that ``model`` carries, if any."""
    data = vars(model).get(ATTRIBUTE)
    if data is None:
        return None
    # models pickled whole by an earlier nhwc have no formats by name
    formats = dict(data.get("formats", {}))
    return Record(data["memory_format"], tuple(data["also"]), dict(data["originals"]), formats)


def write(model: nn.Module, record: Record, undo: ExitStack) -> None:
    """Make ``model`` carry ``record``."""
    if ATTRIBUTE in vars(model):
        undo.callback(vars(model).__setitem__, ATTRIBUTE, vars(model)[ATTRIBUTE])
    else:
        undo.callback(vars(model).pop, ATTRIBUTE, None)
    # Built-in types only: a model pickled whole does not need this package for its record.
    vars(model)[ATTRIBUTE] = {each.name: getattr(record, each.name) for each in fields(record)}


def erase(model: nn.Module) -> None:
    """Take the hooks off ``model`` and forget it, last of all: interrupted, ``restore`` can be called again."""
    handles = _handles.pop(model, _Handles())
    for handle in (
        *(handle for _, hung in handles.optimizers for handle in hung),
        *(handle for _, handle in handles.gradients.values()),
    ):
        handle.remove()
    for key in [key for key, hook in model._load_state_dict_post_hooks.items() if hook is correct_strides]:
        del model._load_state_dict_post_hooks[key]
    vars(model).pop(ATTRIBUTE, None)


def is_converted(model: nn.Module) -> bool:
    """Whether ``model`` itself, not a part of it, carries a record."""
    return read(model) is not None


def forget(model: nn.Module) -> None:
    """Take the hooks of conversions off ``model`` and its parts, and let them stay as they are; doors stay too.

    For a model that something else takes over, which ``restore`` could not change any more.
    """
    for module in model.modules():
        if ATTRIBUTE in vars(module):
            erase(module)


def optimizers_of(model: nn.Module) -> list[Optimizer]:
    """The optimizers that follow ``model`` and still live."""
    alive = [reference() for reference, _ in _handles.get(model, _Handles()).optimizers]
    return [optimizer for optimizer in alive if optimizer is not None]


def follow_optimizers(model: nn.Module, optimizers: Iterable[Optimizer], undo: ExitStack) -> None:
    """Let the state that each optimizer loads later take its parameters' strides, and their shape in the model."""
    known = optimizers_of(model)
    entries = _handles.setdefault(model, _Handles()).optimizers
    for optimizer in optimizers:
        if all(optimizer is not one for one in known):
            hung = ImageStates(model).hang(optimizer)
            hung.append(optimizer.register_load_state_dict_post_hook(follow_parameters))
            for handle in hung:
                undo.callback(handle.remove)
            entry = (weakref.ref(optimizer), hung)
            undo.callback(entries.remove, entry)
            entries.append(entry)


def follow_gradients(model: nn.Module, names: Iterable[str], undo: ExitStack) -> None:
    """Give the gradient of each named parameter that parameter's strides, for free, before it is accumulated.

    These weights keep contiguous strides, because DistributedDataParallel broadcasts them alone, while convolutions
    answer with channels-last strides: the same bytes, yet DistributedDataParallel would warn and copy.
    """
    hooked = _handles.setdefault(model, _Handles()).gradients
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in names:
        parameter = parameters.get(name)
        if parameter is None or not parameter.requires_grad:
            continue
        if name in hooked and hooked[name][0]() is parameter:
            continue
        handle = parameter.register_hook(  # type: ignore[no-untyped-call]
            partial(_follow, weakref.ref(parameter))
        )
        undo.callback(handle.remove)
        undo.callback(hooked.pop, name, None)
        hooked[name] = (weakref.ref(parameter), handle)


def _follow(parameter: weakref.ref[torch.Tensor], gradient: torch.Tensor) -> torch.Tensor | None:
    owner = parameter()
    if owner is None or not same_bytes(gradient.shape, gradient.stride(), owner.stride()):
        return None
    return gradient.as_strided(gradient.shape, owner.stride())


def follow_loads(model: nn.Module, undo: ExitStack) -> None:
    """Correct the strides that ``load_state_dict(assign=True)`` takes from a file."""
    if correct_strides not in model._load_state_dict_post_hooks.values():
        handle = model.register_load_state_dict_post_hook(correct_strides)  # type: ignore[no-untyped-call]
        undo.callback(handle.remove)


def correct_strides(model: nn.Module, incompatible_keys: object) -> None:
    """The ``load_state_dict`` post hook. Models pickled whole name it by this place: it must stay."""
    del incompatible_keys
    record = read(model)
    if record is not None:
        plan = plan_conversion(model, record.memory_format, remembered=record.also, formats=record.formats)
        with ExitStack() as undo:
            apply(plan.moves, undo)
            follow_gradients(model, plan.alone, undo)
            undo.pop_all()
