"""Decide which tensors of a model change their strides, and refuse by name what cannot change; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize

from nhwc.conversion.broadcast import broadcast_alone
from nhwc.conversion.moves import Move
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, LayoutKind, channels_last_for, layout, strides_for

_CONVOLUTION_RANK: tuple[tuple[type[nn.Module], int], ...] = (
    (nn.Conv2d, 4),
    (nn.ConvTranspose2d, 4),
    (nn.Conv3d, 5),
    (nn.ConvTranspose3d, 5),
)


@dataclass
class Plan:
    """moves: what changes. targets: the strides each chosen tensor shall have, by name. also: names that patterns
    matched. alone: names of the weights that DistributedDataParallel would broadcast alone."""

    moves: list[Move] = field(default_factory=list)
    targets: dict[str, tuple[int, ...]] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    alone: list[str] = field(default_factory=list)


def plan_conversion(
    model: nn.Module,
    memory_format: str,
    also: Iterable[str] = (),
    remembered: Iterable[str] = (),
    formats: Mapping[str, str] | None = None,
) -> Plan:
    """Strides for every chosen tensor of ``model`` in ``memory_format`` ("auto" or a format's name).

    also: patterns that must match tensors; remembered: names that such patterns matched earlier. formats:
    by name of a tensor, the format of those that take another one than ``memory_format``.
    """
    tensors = model_tensors(model)
    named = _named_tensors(tensors, also) | {name: tensors[name] for name in remembered if name in tensors}
    chosen = _convolution_tensors(model) | named
    _require_matching_rank(chosen, memory_format)
    plan = Plan(also=tuple(named))
    lonely = broadcast_alone(
        (t for t in model.parameters() if not is_lazy(t)), (t for t in model.buffers() if not is_lazy(t))
    )
    for name, tensor in chosen.items():
        if is_lazy(tensor):
            raise ConversionError(f"{name}: it is not initialized yet; run the model once, then convert it")
        asked = (formats or {}).get(name, memory_format)
        wanted = channels_last_for(tensor.dim()) if asked == "auto" else asked
        if wanted != CONTIGUOUS and wanted != channels_last_for(tensor.dim()):
            continue
        contiguous = strides_for(tensor.shape, CONTIGUOUS)
        target = strides_for(tensor.shape, wanted)
        if id(tensor) in lonely and target != contiguous and layout(tensor.shape, target).kind is LayoutKind.AMBIGUOUS:
            target = contiguous
            plan.alone.append(name)
        plan.targets[name] = target
    plan.moves = plan_moves(tensors, plan.targets)
    return plan


def plan_moves(
    tensors: Mapping[str, torch.Tensor],
    targets: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> list[Move]:
    """The moves that give ``tensors`` their ``targets``, with their gradients; raises ConversionError by name.

    shapes: the new shape of each tensor that gets one.
    """
    moves: list[Move] = []
    seen: set[int] = set()
    neighbours = _neighbours(tensors)
    for name, target in targets.items():
        tensor = tensors[name]
        if id(tensor) in seen:
            continue
        if tensor.layout is not torch.strided:
            kind = str(tensor.layout).removeprefix("torch.")
            raise ConversionError(f"{name}: a {kind} tensor has no strides; make it dense first")
        shown = _view(tensor)
        twins = tuple({id(other): other for other in neighbours[id(tensor)].values() if _view(other) == shown}.values())
        seen.update(id(twin) for twin in twins)
        shape = None if shapes is None else shapes.get(name)
        move = Move(name, twins, target, shape)
        if shape is not None or tensor.stride() != target:
            _require_movable(move, neighbours[id(tensor)])
            moves.append(move)
        for twin in twins:
            moves.extend(_gradient_move(name, twin, target, shape))
    return moves


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by each of its names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a lazy module has not given the tensor a shape yet."""
    return isinstance(tensor, UninitializedParameter | UninitializedBuffer)


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a subclass that holds its values in other tensors (DTensor, quantized weights)."""
    return hasattr(type(tensor), "__tensor_flatten__")


def is_without_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a meta or a fake tensor."""
    return tensor.is_meta or hasattr(tensor, "fake_mode")


def _convolution_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for path, module in model.named_modules():
        rank = next((rank for kind, rank in _CONVOLUTION_RANK if isinstance(module, kind)), None)
        if rank is not None:
            for name, tensor in _owned_tensors(module):
                if is_lazy(tensor) or tensor.dim() == rank:
                    found[f"{path}.{name}" if path else name] = tensor
    return found


def _owned_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of one convolution, with the originals of its parametrized ones.

    Those of weight norm stay out: torch computes a contiguous weight from them in any case, so that other strides
    would only add a copy forward and one backward.
    """
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    for name, tensor in own.items():
        stem = name.removesuffix("_g").removesuffix("_v")
        if not (f"{stem}_g" in own and f"{stem}_v" in own):
            yield name, tensor
    if parametrize.is_parametrized(module):
        lists = module.parametrizations
        assert isinstance(lists, nn.ModuleDict)
        for target, parametrizations in lists.items():
            if not any(type(step).__name__ == "_WeightNorm" for step in parametrizations.children()):
                for name, tensor in parametrizations.named_parameters(recurse=False):
                    yield f"parametrizations.{target}.{name}", tensor
                for name, tensor in parametrizations.named_buffers(recurse=False):
                    yield f"parametrizations.{target}.{name}", tensor


def _named_tensors(tensors: Mapping[str, torch.Tensor], also: Iterable[str]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for pattern in also:
        matching = {name: tensor for name, tensor in tensors.items() if fnmatchcase(name, pattern)}
        if not matching:
            raise ConversionError(f"also={pattern!r} matches no parameter or buffer; give a name of named_parameters()")
        for name, tensor in matching.items():
            if not is_lazy(tensor) and channels_last_for(tensor.dim()) is None:
                raise ConversionError(
                    f"{name}: it is {tensor.dim()}-D; 4-D and 5-D tensors can be converted, drop it from also"
                )
        found |= matching
    return found


def _require_matching_rank(chosen: Mapping[str, torch.Tensor], memory_format: str) -> None:
    ranks = {tensor.dim() for tensor in chosen.values() if not is_lazy(tensor)}
    if memory_format in ("auto", CONTIGUOUS) or not ranks:
        return
    formats = {channels_last_for(rank) for rank in ranks}
    if memory_format not in formats:
        (other,) = formats
        raise ConversionError(f"no weight of this model can be {memory_format}; use 'auto' or {other!r}")


def _neighbours(tensors: Mapping[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
    """By the ``id`` of each tensor, the tensors of the model (itself too) that lie in the same storage."""
    storages: dict[tuple[object, ...], dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        storages.setdefault(_storage(tensor), {})[name] = tensor
    return {id(tensor): storages[_storage(tensor)] for tensor in tensors.values()}


def _storage(tensor: torch.Tensor) -> tuple[object, ...]:
    if is_lazy(tensor) or is_wrapper(tensor) or is_without_memory(tensor) or tensor.layout is not torch.strided:
        return (id(tensor),)
    # Tensors without elements all answer 0.
    address = tensor.untyped_storage().data_ptr()
    return (tensor.device, address) if address else (id(tensor),)


def _view(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _require_movable(move: Move, neighbours: Mapping[str, torch.Tensor]) -> None:
    name, tensor = move.name, move.tensors[0]
    if is_wrapper(tensor):
        kind = type(tensor).__name__
        raise ConversionError(
            f"{name}: a {kind} holds its values in other tensors; convert the model before it gets one"
        )
    if tensor.is_quantized:
        raise ConversionError(f"{name}: torch gives a quantized tensor no other strides; dequantize it first")
    if layout(tensor.shape, tensor.stride()).kind is LayoutKind.OVERLAPPING:
        raise ConversionError(f"{name}: it is expanded, several of its elements are one; give it a clone() first")
    if not move.copies:
        return
    if tensor.device.type == "cpu" and not is_without_memory(tensor) and tensor.is_shared():  # type: ignore[no-untyped-call]
        raise ConversionError(f"{name}: other processes may map its shared memory; convert before share_memory()")
    for other, neighbour in neighbours.items():
        if all(neighbour is not twin for twin in move.tensors):
            raise ConversionError(
                f"{name}: it shares memory with {other} in another shape or place; give one a clone() first"
            )


def _gradient_move(
    name: str, tensor: torch.Tensor, target: tuple[int, ...], shape: tuple[int, ...] | None
) -> Iterator[Move]:
    gradient = tensor.grad if tensor.is_leaf else None
    if gradient is None or gradient.layout is not torch.strided or gradient.shape != tensor.shape:
        return
    if shape is not None or gradient.stride() != target:
        yield Move(f"{name}.grad", (gradient,), target, shape)
