"""Tensor verbs over the stride algebra: read a tensor's layout, bring a tensor to a memory format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from nhwc import strides
from nhwc.errors import FormatError
from nhwc.kernels import relayout

if TYPE_CHECKING:
    from nhwc.strides import Layout

_FORMATS = {
    strides.CONTIGUOUS: torch.contiguous_format,
    strides.CHANNELS_LAST: torch.channels_last,
    strides.CHANNELS_LAST_3D: torch.channels_last_3d,
}


def layout_of(tensor: torch.Tensor) -> Layout:
    """What the strides of ``tensor`` (any rank, dtype and device) say about its layout.

    Raises FormatError for a tensor without strides: sparse, nested, mkldnn, or not yet initialized.

    >>> layout_of(torch.empty(10, 3, 32, 32, memory_format=torch.channels_last)).kind.value
    'channels_last'
    """
    _require_strides(tensor)
    return strides.layout(tuple(tensor.shape), tensor.stride())


def to_format(tensor: torch.Tensor, memory_format: object) -> torch.Tensor:
    """``tensor`` with the canonical strides of ``memory_format``: same shape, dtype and values, autograd kept.

    memory_format: "contiguous" (any rank), "channels_last" (4-D: N, C, H, W) or "channels_last_3d"
        (5-D: N, C, D, H, W), by name or as ``torch.memory_format``.

    Where the bytes already lie right the result shares the storage of ``tensor``: it is ``tensor`` itself, or a
    view that corrects the strides of dimensions of size 1. ``Tensor.contiguous`` leaves those as they are, and
    ``Tensor.to`` copies for them. Otherwise the result is a copy. In place operations on the result reach
    ``tensor`` in the first case only, as with ``Tensor.contiguous``.

    Raises FormatError where the format does not exist for the rank, and for a tensor without strides.

    >>> image = torch.empty(2, 3, 8, 8, memory_format=torch.channels_last)[0].unsqueeze(0)
    >>> image.stride(), to_format(image, "channels_last").stride()
    ((3, 1, 24, 3), (192, 1, 24, 3))
    """
    name = strides.format_name(memory_format)
    _require_strides(tensor)
    wanted = strides.strides_for(tensor.shape, name)
    if tensor.stride() == wanted:
        return tensor
    if tensor.is_quantized and tensor.qscheme() != torch.per_tensor_affine:
        raise FormatError("torch cannot restride a tensor quantized per channel; dequantize it first")
    result = tensor
    if 0 in tensor.shape:
        result = tensor.as_strided(tensor.shape, wanted)
    else:
        if not strides.holds(tensor.shape, tensor.stride(), name):
            if relayout.serves(tensor):
                return relayout.to_format(tensor, name != strides.CONTIGUOUS)
            result = tensor.clone(memory_format=_FORMATS[name])
        if result.stride() != wanted:
            result = _restride(result, strides.memory_order(tensor.dim(), name))
    if result.stride() != wanted:
        raise FormatError(
            f"{type(tensor).__name__} of shape {tuple(tensor.shape)} keeps strides {result.stride()} where {name} has "
            f"{wanted}; convert the plain tensor inside it instead"
        )
    return result


def _restride(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """A view of a tensor that is dense in ``order``, with fresh strides for its dimensions of size 1.

    ``unsqueeze`` gives a new dimension the stride that a canonical layout has there. Unlike ``as_strided``, whose
    backward fills and copies a buffer, every step here has a free backward.
    """
    view = tensor.permute(order).squeeze()
    for position in reversed(range(tensor.dim())):
        if tensor.shape[order[position]] == 1:
            view = view.unsqueeze(position - tensor.dim())
    return view.permute(tuple(order.index(dim) for dim in range(len(order))))


def _require_strides(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise FormatError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        raise FormatError("an uninitialized parameter has no strides yet; run the model once first")
    if tensor.is_nested or tensor.layout != torch.strided:
        what = "a nested" if tensor.is_nested else f"a {str(tensor.layout).removeprefix('torch.')}"
        raise FormatError(f"{what} tensor has no strides, hence no memory format; make it dense first")
