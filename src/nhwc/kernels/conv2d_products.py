"""1x1 convolutions of small pictures as products of matrices, whose rows are the pixels of all pictures.

torch's own give each thread a part of every picture: of 14 pixels and fewer they take up to twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nhwc.kernels.conv2d_operands import fits
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import empty_channels_last, is_channels_last, rows_of

#: Pixels up to which products are faster: of the whole batch for forward, of a picture for the gradients of input and
#: weight.
_FORWARD_IN_ALL, _BY_INPUT, _BY_WEIGHT = 4096, 400, 800


def serves(
    image: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
) -> bool:
    """Whether a call without groups is one of pixels alone, whose operands are right and lie as they should."""
    return (
        set(weight.shape[2:]) == set(stride) == {1}
        and set(padding) == {0}
        and image.dim() == 4
        and image.shape[1] == weight.shape[1] > 1
        and image.dtype == torch.float32
        and is_plain(image)
        and is_channels_last(image)
        and image.numel() > 0
        and fits(weight, weight.shape)
        and weight.numel() > 0
        and torch.get_float32_matmul_precision() == "highest"
    )


def is_faster_forward(image: torch.Tensor) -> bool:
    return image.numel() // image.shape[1] <= _FORWARD_IN_ALL


def is_faster_by_input(image: torch.Tensor) -> bool:
    return image.shape[2] * image.shape[3] <= _BY_INPUT


def is_faster_by_weight(image: torch.Tensor) -> bool:
    return image.shape[2] * image.shape[3] <= _BY_WEIGHT


def convolved(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """(N, C, H, W) by (K, C, 1, 1) and, where there is one, (K)."""
    result = empty_channels_last((image.shape[0], weight.shape[0], *image.shape[2:]), image)
    by = _matrix(weight).t()
    if bias is None:
        torch.mm(_pixels(image), by, out=_pixels(result))
    else:
        torch.addmm(bias, _pixels(image), by, out=_pixels(result))
    return result


def by_input(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The gradient of the picture, from (N, K, H, W) in channels last."""
    result = empty_channels_last((grad.shape[0], weight.shape[1], *grad.shape[2:]), grad)
    torch.mm(_pixels(grad), _matrix(weight), out=_pixels(result))
    return result


def by_weight(grad: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    """The gradient of the weight, (K, C, 1, 1)."""
    result = empty_channels_last((grad.shape[1], image.shape[1], 1, 1), image)
    torch.mm(_pixels(grad).t(), _pixels(image), out=_matrix(result))
    return result


def _pixels(image: torch.Tensor) -> torch.Tensor:
    """Channels last (N, C, H, W) as (N * H * W, C)."""
    return rows_of(image).view(-1, image.shape[1])


def _matrix(weight: torch.Tensor) -> torch.Tensor:
    return weight.view(weight.shape[:2])
