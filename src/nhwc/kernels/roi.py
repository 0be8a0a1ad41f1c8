"""roi_align: each bin of a region gathers whole rows of channels.

torchvision's kernel copies the feature map to contiguous, answers contiguous and runs on one thread.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from nhwc.kernels import native
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, is_channels_last
from nhwc.kernels.registry import kernel

ROI_ALIGN = kernel(
    "roi_align",
    "torchvision's roi_align, forward and backward",
    native="torchvision's own kernels run: they copy the feature map, and answer contiguous",
    needs="torchvision",
    ranks=(4,),
)

_forward = native.Function("roi_align_forward", "ippppd")
_backward = native.Function("roi_align_backward", "ippppd")
_odd = native.Function("roi_align_odd", "ipdppd")

#: What torchvision has kernels for on the CPU.
_DTYPES = (torch.float32, torch.float64, torch.float16)
#: Regions that reach farther, in pixels of the feature map, are torchvision's to read.
_FAR = 1e4


@ROI_ALIGN.replaces("torchvision::roi_align")
def roi_align(
    input: torch.Tensor,  # noqa: A002 torchvision's name
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    bins = pooled_height, pooled_width
    if not _serves(input, rois, bins):
        return NotImplemented
    sizes = _sizes(tuple(input.shape), rois, bins, sampling_ratio, aligned)
    if not _are_near(rois, spatial_scale, sizes):
        return NotImplemented
    result = empty_channels_last((rois.shape[0], input.shape[1], *bins), input)
    _forward(native.dtype_code(input.dtype), input, rois, result, sizes, spatial_scale)
    return result


@ROI_ALIGN.replaces("torchvision::_roi_align_backward")
def roi_align_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    bins, shape = (pooled_height, pooled_width), (batch_size, channels, height, width)
    if not (_serves(grad, rois, bins) and 0 not in shape and grad.shape == (rois.shape[0], channels, *bins)):
        return NotImplemented
    sizes = _sizes(shape, rois, bins, sampling_ratio, aligned)
    if not _are_near(rois, spatial_scale, sizes):
        return NotImplemented
    result = empty_channels_last(shape, grad)
    _backward(native.dtype_code(grad.dtype), grad, rois, result, sizes, spatial_scale)
    return result


@ROI_ALIGN.replaces("torchvision::roi_align", "AutogradCPU")
def roi_align_differentiable(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    recorded = torch.is_grad_enabled() and input.requires_grad and not tracks_forward_gradients()
    if not (recorded and _serves(input, rois, (pooled_height, pooled_width))):
        return NotImplemented
    return _Aligned.apply(input, rois, (spatial_scale, pooled_height, pooled_width), (sampling_ratio, aligned))


class _Aligned(torch.autograd.Function):
    """The operator itself; its backward sees no more than the gradient, which therefore brings the input's format."""

    @staticmethod
    def forward(
        ctx: Any,
        image: torch.Tensor,
        rois: torch.Tensor,
        bins: tuple[float, int, int],
        sampling: tuple[int, bool],
    ) -> torch.Tensor:
        ctx.save_for_backward(rois)
        ctx.arguments = bins, tuple(image.shape), sampling
        result = torch.ops.torchvision.roi_align.default(image, rois, *bins, *sampling)
        assert isinstance(result, torch.Tensor)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (rois,) = ctx.saved_tensors
        bins, shape, sampling = ctx.arguments
        grad = grads[0]
        if torch.is_grad_enabled() or not is_plain(grad):
            grad = grad.contiguous(memory_format=torch.channels_last)
        else:
            grad = as_channels_last(grad.resolve_neg())
        return torch.ops.torchvision._roi_align_backward.default(grad, rois, *bins, *shape, *sampling), None, None, None


def _serves(image: torch.Tensor, rois: torch.Tensor, bins: tuple[int, int]) -> bool:
    return (
        native.is_available()
        and is_plain(image)
        and is_channels_last(image)
        and image.dtype in _DTYPES
        and image.numel() > 0
        and is_plain(rois)
        and rois.device.type == "cpu"
        and rois.dtype == image.dtype
        and rois.layout == torch.strided
        and rois.dim() == 2
        and rois.shape[1] == 5
        and rois.shape[0] > 0
        and min(bins) > 0
    )


def _are_near(rois: torch.Tensor, scale: float, sizes: Any) -> bool:
    found = ctypes.c_int64(0)
    _odd(native.dtype_code(rois.dtype), rois, _FAR, ctypes.addressof(found), sizes, scale)
    return found.value == 0


def _sizes(
    shape: tuple[int, ...], rois: torch.Tensor, bins: tuple[int, int], sampling_ratio: int, aligned: bool
) -> Any:
    values = (*shape, rois.shape[0], *rois.stride(), *bins, max(sampling_ratio, 0), int(aligned))
    return (ctypes.c_int64 * len(values))(*values)
