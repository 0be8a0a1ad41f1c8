"""The arithmetic of batch norm over all ranks: statistics that travel, forward and backward that keep the format."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as distributed
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from nhwc.distributed.wrappers import has_group
from nhwc.errors import DistributedError

Statistics = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Held:
    """A process group that a layer holds. None is all ranks.

    A copy of the layer (an average of weights) shares it; torch's own groups cannot be copied.
    """

    def __init__(self, group: Any | None) -> None:
        self.group = group

    def __deepcopy__(self, memo: dict[int, Any]) -> Held:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.group is not None:
            raise DistributedError(
                "a batch norm over a process group of its own cannot be pickled; save model.state_dict()"
            )
        return Held, (None,)


def group_size(held: Held) -> int:
    """How many ranks take part; 1 where there is no process group."""
    return distributed.get_world_size(held.group) if has_group() else 1


def whole_batch(images: torch.Tensor, held: Held) -> Statistics:
    """Mean and biased variance of each channel over all ranks, (C,) in float32 or float64, and how many values, ().

    Raises ValueError on all ranks where there is less than two of them.
    """
    images = images.detach()
    channels = images.shape[1]
    count = images.numel() // channels if channels else 0
    kind = torch.float64 if images.dtype is torch.float64 else torch.float32
    own = images.new_zeros(2 * channels + 1, dtype=kind)
    if count:
        # Given in single precision, the running statistics make those of a half-precision batch single too.
        tracked = own.new_zeros(2, channels)
        mean, variance = torch.batch_norm_update_stats(images, tracked[0], tracked[1], 0.0)
        own = torch.cat([mean.to(kind), variance.to(kind), own.new_full((1,), count)])
    ranks = [torch.empty_like(own) for _ in range(group_size(held))]
    distributed.all_gather(ranks, own, group=held.group)
    # In double precision: a float32 counts exactly only to 16.7 million, and the means may be far apart.
    table = torch.stack(ranks).double()
    means, variances, counts = table[:, :channels], table[:, channels:-1], table[:, -1:]
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variance = ((variances + (means - mean).square()) * counts).sum(0) / total
    if count < 2 and total < 2:  # asked first, the count of this rank mostly saves waiting for the GPU
        raise ValueError("batch norm in training needs more than one value per channel over all ranks together")
    return mean.to(kind), variance.to(kind), total.to(kind)


@torch.no_grad()
def track(running_mean: torch.Tensor, running_var: torch.Tensor, share: float, statistics: Statistics) -> None:
    """Move the running statistics towards those of a batch, the variance without bias, by a share of the way."""
    mean, variance, count = statistics
    running_mean.lerp_(mean.to(running_mean.dtype), share)
    running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), share)


def normalize(
    images: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    statistics: Statistics,
    eps: float,
    held: Held,
) -> torch.Tensor:
    """(images - mean) / sqrt(variance + eps) * weight + bias, per channel, in the format of ``images``.

    statistics: of the values of all ranks, through which the gradient flows on all ranks.
    """
    result: torch.Tensor = _Normalize.apply(images, weight, bias, *statistics, eps, held)
    return result


class Intercepted(TorchFunctionMode):
    """Inside, ``torch.nn.functional.batch_norm`` in training is that of all ranks. seen: how often it was called."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held = held
        self.seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer for batch norm, and let everything else pass."""
        if func is not functional.batch_norm:
            return func(*args, **(kwargs or {}))
        given = inspect.signature(func).bind(*args, **(kwargs or {}))
        given.apply_defaults()
        asked = given.arguments
        self.seen += 1
        if not asked["training"]:
            return func(*args, **(kwargs or {}))
        statistics = whole_batch(asked["input"], self.held)
        if asked["running_mean"] is not None and asked["running_var"] is not None:
            track(asked["running_mean"], asked["running_var"], asked["momentum"], statistics)
        return normalize(asked["input"], asked["weight"], asked["bias"], statistics, asked["eps"], self.held)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: Any, bias: Any, *rest: Any) -> torch.Tensor:
        mean, variance, count, eps, held = rest
        ctx.save_for_backward(images, weight, mean, (variance + eps).rsqrt(), count)
        ctx.held = held
        scale, shift = (None if each is None else each.to(mean.dtype) for each in (weight, bias))
        return functional.batch_norm(images, mean, variance, scale, shift, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        images, weight, mean, inverse, count = ctx.saved_tensors
        if images.numel():
            gradient = _in_format_of(gradient, images)
            # With the statistics of all ranks, this is the sum over this rank's values alone.
            _, along, total = torch.ops.aten.native_batch_norm_backward(
                gradient, images, torch.ones_like(mean), None, None, mean, inverse, True, 0.0, [False, True, True]
            )
        else:
            along, total = torch.zeros_like(mean), torch.zeros_like(mean)
        weights = (None, None) if weight is None else (along.to(weight.dtype), total.to(weight.dtype))
        back = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([along, total])
            distributed.all_reduce(sums, group=ctx.held.group)
            along, total = (sums / count).chunk(2)
            scale = inverse if weight is None else inverse * weight.to(inverse.dtype)
            back = _input_gradient(gradient, images, mean, inverse * along, total, scale)
        return (back, *weights, None, None, None, None, None)


def _input_gradient(
    gradient: torch.Tensor,
    images: torch.Tensor,
    mean: torch.Tensor,
    slope: torch.Tensor,
    total: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """(gradient - total - (images - mean) * slope) * scale."""
    shape = (1, -1, *(1 for _ in images.shape[2:]))
    result = (images - mean.view(shape)).mul_(slope.view(shape))
    result = torch.sub(gradient, result).sub_(total.view(shape)).mul_(scale.view(shape))
    return result.to(images.dtype)


def _in_format_of(gradient: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    for memory_format, rank in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if images.dim() == rank and images.is_contiguous(memory_format=memory_format):
            return gradient.contiguous(memory_format=memory_format)
    return gradient.contiguous()
