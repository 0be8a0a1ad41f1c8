"""What a normalisation may be off by chance: its mean and spread are sums, exact to some roundings of what is summed.

Where a channel is constant or nearly so, two things make that much. Its spread is nothing, so that the layer divides
rounding by the square root of its eps. And a kernel that adds the same value over and over rounds the same way each
time: its sum drifts with the number of values, by up to a quarter of it in roundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_BATCH = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
_GROUP = ("native_group_norm",)
#: Values this near the median of their channel, relative to it, count as the same value.
_NEAR = 1e-3
#: From this share of such values on a sum drifts.
_SHARE = 0.25
#: Drift for each value that is the same, and for the square root of the number of others, in roundings: the limit is
#: some times that.
_DRIFT = 1 / 16


def move_statistics(func: Any, args: Sequence[Any], result: Any, seed: int, roundings: float) -> None:
    """Change the results of a normalisation, in place, as if the mean and spread it found were ``roundings`` off.

    The same for the two sums of a batch norm's backward pass. Any other call, and a normalisation by running
    statistics, stays as it is.
    """
    name = func._schema.name.partition("::")[2]
    if name == "native_batch_norm_backward":
        _move_backward(args, result, seed, roundings)
        return
    values = args[0] if args else None
    if name not in (*_BATCH, *_GROUP) or not isinstance(values, torch.Tensor) or values.numel() == 0:
        return
    output, mean, inverse = result[:3]
    if mean.numel() == 0 or len(args) < 8 or not output.is_floating_point():
        return
    size = torch.finfo(mean.dtype).eps * roundings
    drift = size * _drift(values, mean)
    generator = torch.Generator().manual_seed(seed)
    by_mean, by_spread = (_uniform(mean, generator) * drift for _ in range(2))
    shift = mean * by_mean
    weight, bias = args[1:3]
    each = [_as_channels(part, values) for part in (shift * inverse, by_spread)]
    scale = 1.0 if weight is None else weight.detach().view(1, -1, *[1] * (values.dim() - 2))
    offset = 0.0 if bias is None else bias.detach().view(1, -1, *[1] * (values.dim() - 2))
    output.add_((((output - offset) * each[1]) - each[0] * scale).to(output.dtype))
    if name in _BATCH and isinstance(args[3], torch.Tensor):
        momentum, epsilon = args[6:8]
        args[3].add_((shift * momentum).to(args[3].dtype))
        args[4].sub_(((inverse**-2 - epsilon).clamp(min=0) * by_spread * 2 * momentum).to(args[4].dtype))
    mean.add_(shift)
    inverse.mul_(1 + by_spread)


def _move_backward(args: Sequence[Any], result: Any, seed: int, roundings: float) -> None:
    gradient, values, weight, _, _, mean, inverse, training = args[:8]
    if not training or gradient.numel() == 0 or mean is None or mean.numel() == 0:
        return
    generator = torch.Generator().manual_seed(seed)
    size = torch.finfo(mean.dtype).eps * roundings
    around = [0, *range(2, values.dim())]
    normal = (values.detach() - _as_channels(mean, values)) * _as_channels(inverse, values)
    products = gradient * normal
    by_sum = gradient.mean(around).to(mean.dtype) * size * _drift(gradient, mean) * _uniform(mean, generator)
    by_product = products.abs().mean(around).to(mean.dtype) * size * _drift(products, mean) * _uniform(mean, generator)
    count = gradient.numel() // mean.numel()
    moved, by_weight, by_bias = result
    if moved is not None:
        scale = inverse if weight is None else inverse * weight.detach()
        change = _as_channels(by_sum, values) + normal * _as_channels(by_product, values)
        moved.sub_((change * _as_channels(scale, values)).to(moved.dtype))
    for each, change in ((by_weight, by_product), (by_bias, by_sum)):
        if each is not None and each.numel():
            each.add_((change * count).to(each.dtype))


def _drift(values: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """For each mean: by how many roundings a sum of its values may be off, at least 1."""
    rows = values.detach().transpose(0, 1) if mean.dim() == 1 else values.detach()
    rows = rows.reshape(mean.numel(), -1)
    median = rows.median(dim=1, keepdim=True).values
    near = ((rows - median).abs() <= _NEAR * median.abs()) & (median != 0)
    share = near.double().mean(dim=1)
    count = rows.shape[1]
    found = torch.where(share > _SHARE, share * count * _DRIFT, count**0.5 * _DRIFT)
    return found.clamp(min=1.0).to(mean.dtype).view(mean.shape)


def _as_channels(statistic: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One number for each mean, laid out to go with ``values``: (C,) of a batch norm, (N, G) of a group norm."""
    places = [1] * (values.dim() - 2)
    if statistic.dim() == 1:
        return statistic.view(1, -1, *places)
    each = values.shape[1] // statistic.shape[1]
    return statistic.repeat_interleave(each, dim=1).view(values.shape[0], values.shape[1], *places)


def _uniform(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random numbers between -1 and 1, drawn on the CPU so that they are the same everywhere."""
    return (torch.rand(like.shape, generator=generator) * 2 - 1).to(like)
