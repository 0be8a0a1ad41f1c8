"""What torchvision's RoI operators have in common: which regions the compiled loops take, and autograd around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, loops_serve

#: What is lost without the compiled library.
LOST = "torchvision's own kernels run: they copy the feature map, and answer contiguous"

_odd = native.Function("roi_odd", "ipdppd")

#: Regions that reach farther, in pixels of the feature map, are torchvision's to read.
_FAR = 1e4


def serves(image: torch.Tensor, rois: torch.Tensor, bins: tuple[int, int], dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether a channels-last ``image``, or the gradient of bins, and (count, 5) ``rois`` of its dtype are taken."""
    return (
        image.dim() == 4
        and loops_serve(image)
        and image.dtype in dtypes
        and is_plain(rois)
        and rois.device.type == "cpu"
        and rois.dtype == image.dtype
        and rois.layout == torch.strided
        and rois.dim() == 2
        and rois.shape[1] == 5
        and rois.shape[0] > 0
        and min(bins) > 0
    )


def sizes_of(
    shape: tuple[int, ...],
    rois: torch.Tensor,
    bins: tuple[int, int],
    *,
    sampling: int = 1,
    aligned: bool = False,
    fewest: int = 0,
) -> Any:
    """What the compiled loops want to know. sampling: samples per bin and axis, 0 for as many as a bin has pixels.

    fewest: how many a region must have, or it is torchvision's.
    """
    values = (*shape, rois.shape[0], *rois.stride(), *bins, max(sampling, 0), int(aligned), fewest)
    return (ctypes.c_int64 * len(values))(*values)


def are_near(rois: torch.Tensor, scale: float, sizes: Any) -> bool:
    """Whether all regions lie in a picture of the batch and near it, have numbers for corners and enough samples."""
    found = ctypes.c_int64(0)
    _odd(native.dtype_code(rois.dtype), rois, _FAR, ctypes.addressof(found), sizes, scale)
    return found.value == 0


def pooled(
    run: native.Function,
    image: torch.Tensor,
    rois: torch.Tensor,
    scale: float,
    channels: int,
    bins: tuple[int, int],
    sizes: Any,
) -> Any:
    """Values of (regions, channels, *bins), and where they come from; NotImplemented where the regions are odd."""
    if not are_near(rois, scale, sizes):
        return NotImplemented
    shape = (rois.shape[0], channels, *bins)
    result = empty_channels_last(shape, image)
    # contiguous whatever the result is: torchvision's backward, which may be the one that runs, reads it so
    places = torch.empty(shape, dtype=torch.int32, device="cpu")
    run(native.dtype_code(image.dtype), image, rois, result, places, sizes, scale)
    return result, places


def gradient_in_rows(grad: torch.Tensor) -> torch.Tensor:
    """The gradient of the bins in channels last: all that a backward kernel sees, which follows its format."""
    if not is_plain(grad):  # many gradients at once
        return grad
    if torch.is_grad_enabled():
        return grad.contiguous(memory_format=torch.channels_last)
    return as_channels_last(grad.resolve_neg())


def are_places(places: torch.Tensor, grad: torch.Tensor) -> bool:
    """Whether ``places`` are what a forward operator answered besides the values that ``grad`` is the gradient of."""
    return (
        is_plain(places)
        and places.device.type == "cpu"
        and places.dtype == torch.int32
        and places.shape == grad.shape
        and places.is_contiguous()
    )


class Pooled(torch.autograd.Function):
    """An operator that answers values and where they come from, and whose backward takes these places.

    operators: the operator and its backward. arguments: what both take after the tensors; backward takes the image's
    shape after them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        image: torch.Tensor,
        rois: torch.Tensor,
        operators: tuple[Callable[..., Any], Callable[..., Any]],
        arguments: tuple[Any, ...],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result, places = operators[0](image, rois, *arguments)
        ctx.save_for_backward(rois, places)
        ctx.mark_non_differentiable(places)
        ctx.backward_of, ctx.arguments, ctx.shape = operators[1], arguments, tuple(image.shape)
        return result, places

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        rois, places = ctx.saved_tensors
        found = ctx.backward_of(gradient_in_rows(grads[0]), rois, places, *ctx.arguments, *ctx.shape)
        assert isinstance(found, torch.Tensor)
        return found, None, None, None
