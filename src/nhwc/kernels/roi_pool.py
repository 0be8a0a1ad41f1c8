"""roi_pool: the maximum over each bin of a region, whole rows of channels at a time.

torchvision's kernel copies the feature map to contiguous, answers contiguous and runs on one thread.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import native, roi_regions
from nhwc.kernels.dispatcher import is_recorded
from nhwc.kernels.layouts import empty_channels_last
from nhwc.kernels.registry import kernel

ROI_POOL = kernel(
    "roi_pool",
    "torchvision's roi_pool, forward and backward",
    native=roi_regions.LOST,
    native_only=("*",),
    needs="torchvision",
    ranks=(4,),
)

_forward = native.Function("roi_pool_forward", "ipppppd")
_backward = native.Function("roi_pool_backward", "ipppppd")

#: What torchvision has kernels for on the CPU.
_DTYPES = (torch.float32, torch.float64)


@ROI_POOL.replaces("torchvision::roi_pool")
def roi_pool(
    input: torch.Tensor,  # noqa: A002 torchvision's name
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not roi_regions.serves(input, rois, bins, _DTYPES):
        return NotImplemented
    sizes = roi_regions.sizes_of(tuple(input.shape), rois, bins)
    return roi_regions.pooled(_forward, input, rois, spatial_scale, input.shape[1], bins, sizes)


@ROI_POOL.replaces("torchvision::_roi_pool_backward")
def roi_pool_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    argmax: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    bins, shape = (pooled_height, pooled_width), (batch_size, channels, height, width)
    if not roi_regions.serves(grad, rois, bins, _DTYPES) or 0 in shape:
        return NotImplemented
    if grad.shape != (rois.shape[0], channels, *bins) or not roi_regions.are_places(argmax, grad):
        return NotImplemented
    sizes = roi_regions.sizes_of(shape, rois, bins)
    if not roi_regions.are_near(rois, spatial_scale, sizes):
        return NotImplemented
    result = empty_channels_last(shape, grad)
    _backward(native.dtype_code(grad.dtype), grad, rois, argmax, result, sizes, spatial_scale)
    return result


@ROI_POOL.replaces("torchvision::roi_pool", "AutogradCPU")
def roi_pool_differentiable(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not (is_recorded(input) and roi_regions.serves(input, rois, bins, _DTYPES)):
        return NotImplemented
    operators = torch.ops.torchvision.roi_pool.default, torch.ops.torchvision._roi_pool_backward.default
    return roi_regions.Pooled.apply(input, rois, operators, (spatial_scale, *bins))
