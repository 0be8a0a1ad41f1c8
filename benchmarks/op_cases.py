"""Representative calls of the operators that nhwc has kernels for, in shapes that models use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from torchvision import ops


@dataclass(frozen=True)
class Case:
    """``call(*tensors)`` on tensors of these shapes. others: operands that are not images.

    backward: time it too. expanded: only the backward, from one gradient for all pixels, as a global mean sends it.
    """

    kernel: str
    name: str
    call: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    others: Callable[[], tuple[torch.Tensor, ...]] = tuple
    backward: bool = True
    expanded: bool = False


VOLUME = (2, 32, 32, 64, 64)
IMAGE = (8, 64, 112, 112)
MAPS = (8, 256, 28, 28)


def _boxes(count: int, size: float) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    corner = torch.rand(count, 2, generator=random) * size * 0.7
    extent = (0.05 + 0.25 * torch.rand(count, 2, generator=random)) * size
    image = (torch.arange(count) % 2).float().unsqueeze(1)
    return torch.cat([image, corner, corner + extent], 1)


def _grid(samples: int, *sizes: int) -> torch.Tensor:
    """Every output pixel in place, moved by a pixel or two: an optical flow."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, size) for size in sizes), indexing="ij")
    exact = torch.stack(axes[::-1], -1).expand(samples, *sizes, len(sizes))
    return exact + 0.03 * torch.randn(exact.shape, generator=torch.Generator().manual_seed(2))


def _shuffle(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def _places(samples: int, channels: int, height: int, width: int) -> torch.Tensor:
    """What max pooling with a window of 2 says of an image of twice the size."""
    image = torch.randn(samples, channels, 2 * height, 2 * width, generator=torch.Generator().manual_seed(3))
    return F.max_pool2d(image, 2, return_indices=True)[1]


def _batch_norm(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, training=True)


def _conv3d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv3d(x, weight, padding=weight.shape[-1] // 2)


def _grid_sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def _twice(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode)


def _antialiased(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.interpolate(x, scale_factor=0.25, mode=mode, antialias=True)


def _roi_align(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    return ops.roi_align(x, boxes, 7, sampling_ratio=2)


def _roi_pool(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    return ops.roi_pool(x, boxes, 7)


def _ps_roi_align(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    return ops.ps_roi_align(x, boxes, 7, sampling_ratio=2)


def _ps_roi_pool(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    return ops.ps_roi_pool(x, boxes, 7)


def _upward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose3d(x, weight, stride=2)


def _deform_conv(x: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return ops.deform_conv2d(x, offset, weight, padding=(1, 1))


CASES: tuple[Case, ...] = (
    Case("instance_norm", "instance_norm 3-D", F.instance_norm, (VOLUME,)),
    Case("instance_norm", "instance_norm 2-D", F.instance_norm, (IMAGE,)),
    Case("group_norm", "group_norm, 32 groups", lambda x: F.group_norm(x, 32), (MAPS,)),
    Case("group_norm", "group_norm 3-D, 8 groups", lambda x: F.group_norm(x, 8), (VOLUME,)),
    Case("avg_pool3d", "avg_pool3d(2)", lambda x: F.avg_pool3d(x, 2), (VOLUME,)),
    Case("avg_pool3d", "avg_pool3d(3, stride 1)", lambda x: F.avg_pool3d(x, 3, 1, 1), ((2, 32, 16, 32, 32),)),
    Case("adaptive_avg_pool", "adaptive_avg_pool3d(4)", lambda x: F.adaptive_avg_pool3d(x, 4), (VOLUME,)),
    Case("adaptive_avg_pool", "adaptive_avg_pool2d(7)", lambda x: F.adaptive_avg_pool2d(x, 7), (IMAGE,)),
    Case("adaptive_max_pool", "adaptive_max_pool3d(4)", lambda x: F.adaptive_max_pool3d(x, 4), (VOLUME,)),
    Case("adaptive_max_pool", "adaptive_max_pool2d(7)", lambda x: F.adaptive_max_pool2d(x, 7), (IMAGE,)),
    Case(
        "fractional_max_pool",
        "fractional_max_pool2d",
        lambda x, r: F.fractional_max_pool2d(x, 2, output_size=56, _random_samples=r),
        (IMAGE,),
        lambda: (torch.full((8, 64, 2), 0.4),),
    ),
    Case(
        "fractional_max_pool",
        "fractional_max_pool3d",
        lambda x, r: F.fractional_max_pool3d(x, 2, output_size=(16, 32, 32), _random_samples=r),
        (VOLUME,),
        lambda: (torch.full((2, 32, 3), 0.4),),
    ),
    Case(
        "max_unpool",
        "max_unpool2d(2)",
        lambda x, p: F.max_unpool2d(x, p, 2),
        ((8, 64, 56, 56),),
        lambda: (_places(8, 64, 56, 56),),
    ),
    Case("softmax", "softmax over 64 channels", lambda x: x.softmax(1), (IMAGE,)),
    Case("softmax", "log_softmax over 21 channels", lambda x: x.log_softmax(1), ((4, 21, 256, 256),)),
    Case("indexing", "x[:, order]", lambda x, i: x[:, i], (IMAGE,), lambda: (torch.randperm(64),)),
    Case(
        "indexing",
        "index_select of half the channels",
        lambda x, i: x.index_select(1, i),
        (IMAGE,),
        lambda: (torch.arange(0, 64, 2),),
    ),
    Case("cat", "cat of two maps", lambda x, y: torch.cat([x, y], 1), ((8, 64, 56, 56), (8, 64, 56, 56))),
    Case("cat", "cat of two channel chunks, swapped", lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), (IMAGE,)),
    Case("channel_shuffle", "channel shuffle by view, transpose, contiguous", _shuffle, (IMAGE,)),
    Case("channel_shuffle", "channel_shuffle", lambda x: F.channel_shuffle(x, 2), (IMAGE,)),
    Case("roll", "roll by half a window", lambda x: x.roll((3, 3), (2, 3)), (IMAGE,)),
    Case("activation_backward", "silu, gradient of a global mean", F.silu, (IMAGE,), expanded=True),
    Case("activation_backward", "hardswish, gradient of a global mean", F.hardswish, (IMAGE,), expanded=True),
    Case("activation_backward", "relu6, gradient of a global mean", F.relu6, (IMAGE,), expanded=True),
    Case("batch_norm", "batch_norm in training", _batch_norm, (IMAGE,)),
    Case("batch_norm", "batch_norm in training, 14x14", _batch_norm, ((8, 232, 14, 14),)),
    Case(
        "conv3d",
        "conv3d 3x3x3, one small volume",
        _conv3d,
        ((1, 64, 8, 16, 16),),
        lambda: (torch.randn(64, 64, 3, 3, 3),),
    ),
    Case(
        "conv3d",
        "conv_transpose3d 2x2x2, stride 2, one volume",
        _upward,
        ((1, 64, 16, 32, 32),),
        lambda: (torch.randn(64, 32, 2, 2, 2),),
    ),
    Case(
        "conv3d",
        "conv3d 1x1x1, one small volume",
        _conv3d,
        ((1, 64, 8, 16, 16),),
        lambda: (torch.randn(64, 64, 1, 1, 1),),
    ),
    Case(
        "grid_sample",
        "grid_sample 3-D, bilinear",
        _grid_sample,
        ((1, 32, 32, 48, 48),),
        lambda: (_grid(1, 32, 48, 48),),
    ),
    Case("interpolate", "bicubic to twice the size", _twice("bicubic"), ((8, 64, 56, 56),)),
    Case("interpolate", "bilinear to twice the size", _twice("bilinear"), ((8, 64, 56, 56),)),
    Case("interpolate", "nearest 3-D to twice the size", _twice("nearest"), ((2, 32, 16, 32, 32),)),
    Case("interpolate", "trilinear to twice the size", _twice("trilinear"), ((2, 32, 16, 32, 32),)),
    Case("interpolate", "bilinear, antialiased, to a quarter", _antialiased("bilinear"), (IMAGE,)),
    Case("interpolate", "bicubic, antialiased, to a quarter", _antialiased("bicubic"), (IMAGE,)),
    Case("pad", "circular padding by one", lambda x: F.pad(x, (1,) * 4, "circular"), (IMAGE,)),
    Case("pad", "circular padding by one, 3-D", lambda x: F.pad(x, (1,) * 6, "circular"), (VOLUME,)),
    Case("pad", "reflection padding by three", lambda x: F.pad(x, (3,) * 4, "reflect"), (IMAGE,)),
    Case("roi_align", "roi_align, 256 boxes", _roi_align, ((2, 256, 50, 50),), lambda: (_boxes(256, 50.0),)),
    Case("roi_pool", "roi_pool, 256 boxes", _roi_pool, ((2, 256, 50, 50),), lambda: (_boxes(256, 50.0),)),
    Case("ps_roi_align", "ps_roi_align, 256 boxes", _ps_roi_align, ((2, 490, 50, 50),), lambda: (_boxes(256, 50.0),)),
    Case("ps_roi_pool", "ps_roi_pool, 256 boxes", _ps_roi_pool, ((2, 490, 50, 50),), lambda: (_boxes(256, 50.0),)),
    Case(
        "deform_conv2d",
        "deform_conv2d 3x3",
        _deform_conv,
        ((2, 128, 28, 28), (2, 18, 28, 28)),
        lambda: (torch.randn(128, 128, 3, 3, generator=torch.Generator().manual_seed(4)),),
    ),
    Case("unfold", "unfold 3x3", lambda x: F.unfold(x, 3, padding=1), ((4, 64, 56, 56),)),
    Case("unfold", "unfold to patches of 4x4", lambda x: F.unfold(x, 4, stride=4), (IMAGE,)),
)
