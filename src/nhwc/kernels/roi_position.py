"""Position-sensitive RoI align and pooling, where every bin of a region reads channels of its own.

torchvision's kernels copy the feature map to contiguous, answer contiguous and run on one thread, weighing the pixels
of a bin anew for each channel.
"""

from __future__ import annotations

from typing import Any

import torch

from nhwc.kernels import native, roi_regions
from nhwc.kernels.dispatcher import is_recorded
from nhwc.kernels.layouts import empty_channels_last
from nhwc.kernels.registry import kernel

PS_ROI_ALIGN = kernel(
    "ps_roi_align",
    "torchvision's ps_roi_align, forward and backward",
    native=roi_regions.LOST,
    native_only=("*",),
    needs="torchvision",
    ranks=(4,),
)
PS_ROI_POOL = kernel(
    "ps_roi_pool",
    "torchvision's ps_roi_pool, forward and backward",
    native=roi_regions.LOST,
    native_only=("*",),
    needs="torchvision",
    ranks=(4,),
)

_align = native.Function("ps_roi_align_forward", "ipppppd")
_align_backward = native.Function("ps_roi_align_backward", "ippppd")
_pool = native.Function("ps_roi_pool_forward", "ipppppd")
_pool_backward = native.Function("ps_roi_pool_backward", "ippppd")

#: What torchvision has kernels for on the CPU.
_ALIGN_DTYPES = (torch.float32, torch.float64, torch.float16)
_POOL_DTYPES = (torch.float32, torch.float64)


@PS_ROI_ALIGN.replaces("torchvision::ps_roi_align")
def ps_roi_align(
    input: torch.Tensor,  # noqa: A002 torchvision's name
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not roi_regions.serves(input, rois, bins, _ALIGN_DTYPES):
        return NotImplemented
    sizes = _align_sizes(tuple(input.shape), rois, bins, sampling_ratio)
    return _forward(_align, input, rois, spatial_scale, bins, sizes)


@PS_ROI_POOL.replaces("torchvision::ps_roi_pool")
def ps_roi_pool(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not roi_regions.serves(input, rois, bins, _POOL_DTYPES):
        return NotImplemented
    sizes = roi_regions.sizes_of(tuple(input.shape), rois, bins)
    return _forward(_pool, input, rois, spatial_scale, bins, sizes)


@PS_ROI_ALIGN.replaces("torchvision::_ps_roi_align_backward")
def ps_roi_align_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    channel_mapping: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    bins, shape = (pooled_height, pooled_width), (batch_size, channels, height, width)
    if not roi_regions.serves(grad, rois, bins, _ALIGN_DTYPES):
        return NotImplemented
    sizes = _align_sizes(shape, rois, bins, sampling_ratio)
    return _backward(_align_backward, grad, rois, channel_mapping, spatial_scale, bins, shape, sizes)


@PS_ROI_POOL.replaces("torchvision::_ps_roi_pool_backward")
def ps_roi_pool_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    channel_mapping: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    bins, shape = (pooled_height, pooled_width), (batch_size, channels, height, width)
    if not roi_regions.serves(grad, rois, bins, _POOL_DTYPES):
        return NotImplemented
    sizes = roi_regions.sizes_of(shape, rois, bins)
    return _backward(_pool_backward, grad, rois, channel_mapping, spatial_scale, bins, shape, sizes)


@PS_ROI_ALIGN.replaces("torchvision::ps_roi_align", "AutogradCPU")
def ps_roi_align_differentiable(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not (is_recorded(input) and roi_regions.serves(input, rois, bins, _ALIGN_DTYPES)):
        return NotImplemented
    operators = torch.ops.torchvision.ps_roi_align.default, torch.ops.torchvision._ps_roi_align_backward.default
    return roi_regions.Pooled.apply(input, rois, operators, (spatial_scale, *bins, sampling_ratio))


@PS_ROI_POOL.replaces("torchvision::ps_roi_pool", "AutogradCPU")
def ps_roi_pool_differentiable(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
) -> Any:
    bins = pooled_height, pooled_width
    if not (is_recorded(input) and roi_regions.serves(input, rois, bins, _POOL_DTYPES)):
        return NotImplemented
    operators = torch.ops.torchvision.ps_roi_pool.default, torch.ops.torchvision._ps_roi_pool_backward.default
    return roi_regions.Pooled.apply(input, rois, operators, (spatial_scale, *bins))


def _align_sizes(shape: tuple[int, ...], rois: torch.Tensor, bins: tuple[int, int], sampling_ratio: int) -> Any:
    # torchvision divides by the number of samples, which an empty region has none of
    return roi_regions.sizes_of(shape, rois, bins, sampling=sampling_ratio, aligned=True, fewest=1)


def _forward(
    run: native.Function,
    image: torch.Tensor,
    rois: torch.Tensor,
    scale: float,
    bins: tuple[int, int],
    sizes: Any,
) -> Any:
    results, rest = divmod(image.shape[1], bins[0] * bins[1])
    if rest or not results:
        return NotImplemented
    return roi_regions.pooled(run, image, rois, scale, results, bins, sizes)


def _backward(
    run: native.Function,
    grad: torch.Tensor,
    rois: torch.Tensor,
    mapping: torch.Tensor,
    scale: float,
    bins: tuple[int, int],
    shape: tuple[int, int, int, int],
    sizes: Any,
) -> Any:
    results, rest = divmod(shape[1], bins[0] * bins[1])
    if rest or 0 in shape or grad.shape != (rois.shape[0], results, *bins):
        return NotImplemented
    if not roi_regions.are_places(mapping, grad) or not roi_regions.are_near(rois, scale, sizes):
        return NotImplemented
    # the mapping that torchvision's forward makes: any other is no gradient of it
    if not torch.equal(
        mapping.view(rois.shape[0], -1),
        torch.arange(shape[1], dtype=torch.int32, device="cpu").expand(rois.shape[0], -1),
    ):
        return NotImplemented
    result = empty_channels_last(shape, grad)
    run(native.dtype_code(grad.dtype), grad, rois, result, sizes, scale)
    return result
