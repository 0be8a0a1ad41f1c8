"""roi_align: each bin of a region gathers whole rows of channels.

torchvision's kernel copies the feature map to contiguous, answers contiguous and runs on one thread.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import native, roi_regions
from nhwc.kernels.dispatcher import is_recorded
from nhwc.kernels.layouts import empty_channels_last
from nhwc.kernels.registry import kernel

ROI_ALIGN = kernel(
    "roi_align",
    "torchvision's roi_align, forward and backward",
    native=roi_regions.LOST,
    native_only=("*",),
    needs="torchvision",
    ranks=(4,),
)

_forward = native.Function("roi_align_forward", "ippppd")
_backward = native.Function("roi_align_backward", "ippppd")

#: What torchvision has kernels for on the CPU.
_DTYPES = (torch.float32, torch.float64, torch.float16)


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
    if not roi_regions.serves(input, rois, bins, _DTYPES):
        return NotImplemented
    sizes = roi_regions.sizes_of(tuple(input.shape), rois, bins, sampling=sampling_ratio, aligned=aligned)
    if not roi_regions.are_near(rois, spatial_scale, sizes):
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
    if not roi_regions.serves(grad, rois, bins, _DTYPES) or 0 in shape:
        return NotImplemented
    sizes = roi_regions.sizes_of(shape, rois, bins, sampling=sampling_ratio, aligned=aligned)
    if grad.shape != (rois.shape[0], channels, *bins) or not roi_regions.are_near(rois, spatial_scale, sizes):
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
    bins = pooled_height, pooled_width
    if not (is_recorded(input) and roi_regions.serves(input, rois, bins, _DTYPES)):
        return NotImplemented
    return _Aligned.apply(input, rois, (spatial_scale, *bins), (sampling_ratio, aligned))


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
        grad = roi_regions.gradient_in_rows(grads[0])
        return torch.ops.torchvision._roi_align_backward.default(grad, rois, *bins, *shape, *sampling), None, None, None
