"""Channel shuffle, in the three ways that models write it: ``channel_shuffle``, and a view, a transposition of the two
channel dimensions and either ``reshape`` or ``contiguous`` and ``view``.

A 5-D tensor that has the shuffled strides of a channels-last image becomes dense with its channels shuffled, image
channels innermost, so that the following ``view`` to four dimensions is channels last. In the ``contiguous`` form the
5-D tensor in between is therefore dense, but not contiguous; only code that reads it before that ``view`` can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from nhwc.kernels import gpu, native
from nhwc.kernels.dispatcher import is_plain, tracks_forward_gradients
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, lies_channels_last
from nhwc.kernels.registry import kernel

SHUFFLE = kernel(
    "channel_shuffle",
    "channel shuffle, as one operator and as view, transpose and reshape or contiguous",
    native="torch's own copies move the channels, several times slower",
)

#: On others nobody tried the composition.
_DEVICES = frozenset({"cpu", "cuda"})

_shuffle = native.Function("shuffle_channels", "ipplll")


class _Shuffled(torch.autograd.Function):
    """Channel shuffle of a channels-last image; the gradient is shuffled back.

    Both get canonical strides, which a view of one sample has not.
    """

    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, groups: int) -> torch.Tensor:
        samples, channels, *pixels = image.shape
        ctx.groups = channels // groups
        image = as_channels_last(image)
        result = empty_channels_last(image.shape, image)
        if (
            image.is_cpu
            and native.is_available()
            and image.element_size() <= 8
            and not (image.is_conj() or image.is_neg())
        ):
            rows = samples * math.prod(pixels)
            _shuffle(image.element_size(), image, result, rows, groups, ctx.groups)
        else:
            turned = image.view(samples, groups, ctx.groups, *pixels).transpose(1, 2)
            result.view(samples, ctx.groups, groups, *pixels).copy_(turned)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (_Shuffled.apply(grad, ctx.groups) if is_plain(grad) else torch.channel_shuffle(grad, ctx.groups)), None


@SHUFFLE.replaces("aten::contiguous", "AutogradCPU")
@SHUFFLE.replaces("aten::contiguous", "AutogradCUDA", where=gpu.is_present)
def contiguous(self: torch.Tensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
    # not at clone, in which reshape ends as well: it cuts what it copied into other shapes than an image's
    if memory_format != torch.contiguous_format or not _is_turned(self):
        return NotImplemented
    return _shuffled(self).view(self.shape)


@SHUFFLE.replaces("aten::reshape", "CompositeImplicitAutograd")
def reshape(self: torch.Tensor, shape: Sequence[int]) -> Any:
    if len(shape) != 4 or not _is_turned(self):
        return NotImplemented
    samples, a, b, height, width = self.shape
    wanted = (samples, a * b, height, width)
    if sum(size == -1 for size in shape) > 1:
        return NotImplemented
    if any(size not in {-1, want} for size, want in zip(shape, wanted, strict=True)):
        return NotImplemented
    return _shuffled(self)


@SHUFFLE.replaces("aten::ravel", "CompositeImplicitAutograd")
def ravel(self: torch.Tensor) -> Any:
    # torch's own views what contiguous answers
    return self.reshape(-1) if _is_turned(self) else NotImplemented


@SHUFFLE.replaces("aten::channel_shuffle")
@SHUFFLE.replaces("aten::channel_shuffle", "AutogradCPU")
@SHUFFLE.replaces("aten::native_channel_shuffle")
@SHUFFLE.replaces("aten::native_channel_shuffle", "AutogradCPU")
@SHUFFLE.replaces("aten::channel_shuffle", "CUDA", where=gpu.is_present)
@SHUFFLE.replaces("aten::channel_shuffle", "AutogradCUDA", where=gpu.is_present)
@SHUFFLE.replaces("aten::native_channel_shuffle", "CUDA", where=gpu.is_present)
@SHUFFLE.replaces("aten::native_channel_shuffle", "AutogradCUDA", where=gpu.is_present)
def channel_shuffle(self: torch.Tensor, groups: int) -> Any:
    if self.dim() != 4 or not is_plain(self) or not lies_channels_last(self) or groups < 2 or self.shape[1] % groups:
        return NotImplemented
    if tracks_forward_gradients():
        return NotImplemented
    return _Shuffled.apply(self, groups)


def _is_turned(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a channels-last image with its channels split in two dimensions, and these transposed."""
    if tensor.dim() != 5 or tensor.stride(1) != 1 or not is_plain(tensor) or tensor.device.type not in _DEVICES:
        return False
    samples, a, b, height, width = tensor.shape
    if a < 2 or b < 2 or height * width < 2 or not tensor.numel() or tracks_forward_gradients():
        return False
    channels = a * b
    batch, *strides = tensor.stride()
    # a view of one sample has any stride for the batch
    return strides == [1, a, width * channels, channels] and (samples == 1 or batch == height * width * channels)


def _shuffled(turned: torch.Tensor) -> torch.Tensor:
    """The image (N, a * b, H, W) that a turned (N, a, b, H, W) is copied into."""
    samples, a, b, height, width = turned.shape
    image = turned.transpose(1, 2).view(samples, a * b, height, width)
    shuffled: torch.Tensor = _Shuffled.apply(image, b)
    return shuffled
