"""Recorded calls made to run again, on made-up tensors of the recorded shapes, strides and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nhwc.model import Call, TensorMeta

#: Made-up numbers that differ from each other.
_BLOCK = 2**16
_NAMESPACES = ("aten", "prims", "mkldnn", "torchvision", "nhwc")


class NotReplayableError(Exception):
    """The call cannot be run again from what the trace holds."""


#: What making up and running a call can raise: made-up index values, missing custom classes, an unknown operator.
CANNOT_RUN = (NotReplayableError, RuntimeError, TypeError, ValueError, NotImplementedError, IndexError)


def likeness(call: Call) -> object:
    """Equal for calls that run alike: operator, layouts of the operands, other arguments."""
    layouts = tuple((meta.shape, meta.strides, meta.dtype, meta.device) for meta in call.inputs)
    return call.operator, layouts, repr(call.arguments), repr(call.keywords)


def cuda_devices(calls: Sequence[Call]) -> list[int]:
    """The indices of the GPUs that hold operands of ``calls``."""
    devices = {torch.device(meta.device) for call in calls for meta in call.inputs}
    return sorted(device.index or 0 for device in devices if device.type == "cuda")


def runner(call: Call, metas: Sequence[TensorMeta]) -> Callable[[], object]:
    """What runs ``call`` on made-up tensors like ``metas``; NotReplayableError where the trace holds too little."""
    return runner_on(call, [made_up(meta) for meta in metas])


def runner_on(call: Call, tensors: Sequence[torch.Tensor]) -> Callable[[], object]:
    """What runs ``call`` on ``tensors``; NotReplayableError where the trace holds too little."""
    operator = _overload(call.operator)
    arguments = [_decode(value, tensors) for value in call.arguments]
    keywords = {key: _decode(value, tensors) for key, value in call.keywords}
    return lambda: operator(*arguments, **keywords)


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition(".")
    operator, _, overload = rest.partition(".")
    if namespace not in _NAMESPACES:
        raise NotReplayableError(name)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    except AttributeError as error:
        raise NotReplayableError(name) from error


def made_up(meta: TensorMeta) -> torch.Tensor:
    """A tensor of that shape, strides and dtype: small random numbers, zeros for integers (always a valid index)."""
    if not meta.itemsize or not hasattr(torch, meta.dtype):  # no bytes: sparse, nested, opaque
        raise NotReplayableError(meta.dtype)
    dtype = getattr(torch, meta.dtype)
    extent = (
        1 + sum((size - 1) * stride for size, stride in zip(meta.shape, meta.strides, strict=True))
        if 0 not in meta.shape
        else 0
    )
    if dtype.is_floating_point and meta.itemsize >= 2:
        memory = _random(max(extent, 1), meta.device).to(dtype)
    else:
        memory = torch.zeros(max(extent, 1), device=meta.device, dtype=dtype)
    return memory.as_strided(meta.shape, meta.strides)


def _random(count: int, device: str) -> torch.Tensor:
    """So many numbers from 0 to 1, which repeat from block to block: drawing each would take longer than most calls."""
    block = torch.rand(min(count, _BLOCK), device=device, dtype=torch.float32)
    return block if count == len(block) else block.repeat(-(-count // len(block)))[:count]


def _decode(value: object, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float(value["float"])
    if "torch" in value:
        if value["torch"] == "device":
            return torch.device(value["value"])
        return getattr(torch, value["value"])
    raise NotReplayableError(str(value))
