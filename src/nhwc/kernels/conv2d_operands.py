"""What both ways of 2-D convolutions ask of weights and biases."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nhwc.kernels.dispatcher import is_plain


def fits(tensor: torch.Tensor, shape: Sequence[int]) -> bool:
    """Whether ``tensor`` is plain float32 memory of the CPU, in any strides, and of this shape."""
    plain = is_plain(tensor) and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_neg()
    return plain and tensor.dtype == torch.float32 and tuple(tensor.shape) == tuple(shape)
