"""The public verbs: convert and restore. Each plans first, and undoes everything where anything fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from nhwc.conversion import flattening, record
from nhwc.conversion.doors import hang_input_door, hang_output_door, take_doors_off
from nhwc.conversion.image_states import plan_image_states
from nhwc.conversion.moves import Move, apply
from nhwc.conversion.optimizers import optimizers_without_state, plan_states, require_own
from nhwc.conversion.plan import is_lazy, model_tensors, plan_conversion, plan_moves
from nhwc.conversion.survey import survey
from nhwc.conversion.targets import convertible
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, format_name

ModelT = TypeVar("ModelT", bound=nn.Module)
Optimizers = Optimizer | Sequence[Optimizer] | None


def convert(
    model: ModelT,
    memory_format: object = "auto",
    *,
    optimizer: Optimizers = None,
    inputs: bool = False,
    outputs: object = None,
    also: Iterable[str] = (),
    flatten: object = None,
) -> ModelT:
    """Bring the weights of every 2-D and 3-D convolution of ``model`` to a memory format, in place; returns the model.

    Parameters stay the objects they are (``.data`` changes), tied weights stay tied, gradients follow. Weights whose
    bytes are the same in both formats (1x1, depthwise, one input channel) get the canonical channels-last strides,
    without a copy. Calling it again changes nothing, or brings what is new into line.

    memory_format: "auto" gives 4-D weights (O, I, H, W) channels_last and 5-D weights (O, I, D, H, W)
        channels_last_3d; "channels_last" or "channels_last_3d" only the weights of that rank; "contiguous" undoes
        either without forgetting what ``restore`` would do.
    optimizer: the optimizer, or several, that already exist. Their state and every checkpoint they load later follow
        their parameters; fused optimizers would otherwise compute wrong updates. One that lives but has no state yet
        is found and followed unasked; for one made later that resumes from a checkpoint, call ``convert`` again.
    inputs: also bring every floating 4-D and 5-D tensor among the arguments of each call of ``model`` to the format,
        in lists, tuples, dicts and dataclasses too, so that no training loop changes. Other ranks pass untouched.
    outputs: a memory format, mostly "contiguous", that 4-D and 5-D floating results shall leave in.
    also: names (or patterns such as "*.pos_embed") of other 4-D and 5-D parameters and buffers used as
        N, C, H, W. By default only convolutions' own tensors change: a kernel that user code keeps as H, W, I, O and
        permutes would not gain, and torchvision's DeformConv2d would copy its weight back at every call.

    flatten: example arguments of ``model``, one or a tuple of them. Every Linear behind a flattened image then takes it
        in the order of channels last, so that ``flatten``, ``view`` or ``reshape`` copies nothing: the weight becomes
        (O, C, H, W) in channels last, and the module in front hands out (N, H * W * C, 1, 1). State dicts keep
        (O, C * H * W). The example is run some times, and only what these runs prove right is changed; a warning
        names every other flatten, with the reason.

    A part of the model that needs plain N, C, H, W memory, because it reads addresses, gets a border of its own
    afterwards: ``convert(model.part, "contiguous", inputs=True)``.

    The format survives ``load_state_dict`` (with ``assign=True`` too: the file's strides are corrected after each
    load through ``model``), ``copy.deepcopy``, ``torch.save`` and load, ``share_memory`` and ``to(dtype or device)``.
    It is undone by replacing layers or parameters, and by ``load_state_dict(assign=True)`` on a part of the model:
    call ``convert`` again. Convert before DistributedDataParallel, and before ``share_memory``.

    Raises ConversionError by parameter name and reason where something cannot be converted, where a live optimizer
    with state was not passed, where DistributedDataParallel, FSDP or TorchScript already hold the model, and where
    ``flatten`` finds no Linear to change; FormatError for an unknown format. The model, its hooks and the optimizers
    are then as before.

    >>> from torch import nn
    >>> model = convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8)))
    >>> model[0].weight.stride(), model[1].weight.stride()
    ((27, 1, 9, 3), (9, 1, 3, 1))
    """
    _convert(model, _format(memory_format), {}, optimizer, inputs, outputs, also, flatten)
    return model


def convert_each(model: ModelT, formats: Mapping[str, str], *, optimizer: Optimizers = None) -> ModelT:
    """``convert`` the weights of some convolutions, and bring those of all others to contiguous.

    formats: name of a parameter → "auto", "channels_last" or "channels_last_3d". Raises as ``convert`` does.
    """
    _convert(model, CONTIGUOUS, formats, optimizer, False, None, (), None)
    return model


def _convert(
    model: nn.Module,
    wanted: str,
    formats: Mapping[str, str],
    optimizer: Optimizers,
    inputs: bool,
    outputs: object,
    also: Iterable[str],
    flatten: object,
) -> None:
    leaving = None if outputs is None else _format(outputs)
    core = convertible(model)
    optimizers = _optimizers(optimizer)
    before = record.read(core)
    patterns = [also] if isinstance(also, str) else also
    plan = plan_conversion(core, wanted, patterns, before.also if before else (), formats)
    for one in optimizers:
        require_own(one, core)
    moves, followed = _with_optimizers(core, plan.moves, optimizers)
    tensors = model_tensors(core)
    originals = {name: (tuple(tensors[name].shape), tensors[name].stride()) for name in plan.targets}
    example = None if flatten is None else _example(flatten, wanted)
    surveyed = None if example is None else survey(core, example)
    with ExitStack() as undo:
        record.write(
            core,
            record.Record(wanted, plan.also, {**originals, **(before.originals if before else {})}, dict(formats)),
            undo,
        )
        apply(moves, undo)
        record.follow_loads(core, undo)
        record.follow_optimizers(core, followed, undo)
        record.follow_gradients(core, plan.alone, undo)
        if inputs:
            undo.callback(hang_input_door(core, wanted))
        if leaving is not None:
            undo.callback(hang_output_door(core, leaving))
        refused: list[str] = []
        if example is not None and surveyed is not None:
            known = record.optimizers_of(core)
            passed = [*optimizers, *(one for one in known if all(one is not each for each in optimizers))]
            weights, refused = flattening.fold(core, example, surveyed, undo)
            states, followed = _with_optimizers(core, weights, passed)
            apply(states[len(weights) :], undo)
            record.follow_optimizers(core, followed, undo)
        undo.pop_all()
    for reason in refused:
        warnings.warn(f"flatten=: {reason}", UserWarning, stacklevel=3)


def restore(model: ModelT, *, optimizer: Optimizers = None) -> ModelT:
    """Undo ``convert``: every parameter and buffer gets the strides it had before, values as they are now.

    Gradients and the state of the optimizers that ``convert`` was given (or of ``optimizer``) follow, doors and hooks
    go. Works on a deep copy and on a model unpickled whole as well: what has to be known travels in the model.
    Layers added since are left alone. Parts that were converted on their own are restored first, in reverse order.

    Raises ConversionError for a model that was not converted, and where ``convert`` would.

    >>> from torch import nn
    >>> model = nn.Conv2d(3, 8, 3)
    >>> restore(convert(model)).weight.stride()
    (27, 9, 3, 1)
    """
    core = convertible(model)
    before = record.read(core)
    if before is None:
        raise ConversionError(
            f"this {type(core).__name__} was not converted, there is nothing to restore; pass the module convert() took"
        )
    tensors = model_tensors(core)
    targets = {
        name: strides
        for name, (shape, strides) in before.originals.items()
        if name in tensors and not is_lazy(tensors[name]) and tuple(tensors[name].shape) == shape
    }
    given = _optimizers(optimizer)
    for one in given:
        require_own(one, core)
    optimizers = [*given, *(known for known in record.optimizers_of(core) if all(known is not one for one in given))]
    moves, _ = _with_optimizers(core, [*plan_moves(tensors, targets), *flattening.plan_unfold(core)], optimizers)
    with ExitStack() as undo:
        apply(moves, undo)
        undo.pop_all()
    flattening.unfold(core)
    take_doors_off(core)
    record.erase(core)
    return model


def _with_optimizers(
    model: nn.Module, moves: list[Move], passed: list[Optimizer]
) -> tuple[list[Move], list[Optimizer]]:
    """The moves with those of the optimizers' states, and the optimizers that shall follow from now on."""
    names = {id(tensor): name for name, tensor in reversed(model_tensors(model).items())}
    found = optimizers_without_state(moves, names, passed)
    reshaped = [move for move in moves if move.shape is not None]
    targets = {id(tensor): move.strides for move in moves if move.shape is None for tensor in move.tensors}
    apart = {id(tensor) for move in reshaped for tensor in move.tensors}
    images = [*(move for move in flattening.standing(model) if id(move.tensors[0]) not in apart), *reshaped]
    states = [
        *(move for one in passed for move in plan_states(one, names, targets, apart)),
        *(move for one in [*passed, *found] for move in plan_image_states(one, names, images)),
    ]
    return [*moves, *states], [*passed, *found]


def _format(memory_format: object) -> str:
    return "auto" if memory_format == "auto" else format_name(memory_format)


def _example(flatten: object, memory_format: str) -> tuple[object, ...]:
    if memory_format == CONTIGUOUS:
        raise ConversionError("flatten= is for channels last: leave it out of a conversion to contiguous")
    return flatten if isinstance(flatten, tuple) else (flatten,)


def _optimizers(optimizer: Optimizers) -> list[Optimizer]:
    if optimizer is None:
        return []
    found = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    for one in found:
        if not isinstance(one, torch.optim.Optimizer):
            raise ConversionError(f"optimizer= takes a torch optimizer or several, got {type(one).__name__}")
    return found
