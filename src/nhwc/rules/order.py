"""Which way the data of an image lies: pixel by pixel (channels last) or plane by plane (contiguous).

Wider than ``is_contiguous``: a channel slice of a channels-last tensor still lies pixel by pixel, and so does the
(N, groups, C/groups, H, W) view that a channel shuffle takes of one. An expanded dimension (stride 0) counts as one of
size 1: it repeats data that lies in its own order.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from nhwc.model import TensorMeta
from nhwc.strides import physical_order


class Order(str, Enum):
    """pixels: channels fastest; planes: channels slower than space; either: nothing tells them apart;
    other: dense in another order, or a rank that is no image."""

    PIXELS = "channels last"
    PLANES = "contiguous"
    EITHER = "either"
    OTHER = "other"


def order_of(meta: TensorMeta) -> Order:
    """The order of a tensor of rank 4 or 5; Order.OTHER for other ranks and for tensors without elements."""
    return _order(meta.shape, meta.strides)


@lru_cache(maxsize=65536)
def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> Order:
    if len(shape) not in (4, 5) or 0 in shape:
        return Order.OTHER
    order = physical_order(_repeated_once(shape, strides), strides)
    if 0 in order and order[0] != 0:
        return Order.OTHER
    dims = tuple(dim for dim in order if dim != 0)
    readings = [_reading(dims, channels=(1,), space=tuple(range(2, len(shape))))]
    if len(shape) == 5:  # a 4-D tensor whose channels were split in two
        readings.append(_reading(dims, channels=(1, 2), space=(3, 4)))
    for wanted in (Order.EITHER, Order.PIXELS, Order.PLANES):
        if wanted in readings:
            return wanted
    return Order.OTHER


def _repeated_once(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if stride == 0 else size for size, stride in zip(shape, strides, strict=True))


def permutes(source: TensorMeta, target: TensorMeta) -> bool:
    """Whether a copy changes the order of the dimensions in memory, gaps and repeats aside; the shapes are equal."""
    shape = _repeated_once(source.shape, source.strides)
    return physical_order(shape, source.strides) != physical_order(shape, target.strides)


def _reading(dims: tuple[int, ...], channels: tuple[int, ...], space: tuple[int, ...]) -> Order:
    in_space = tuple(dim for dim in dims if dim in space)
    in_channels = tuple(dim for dim in dims if dim in channels)
    if in_space != tuple(sorted(in_space)):
        return Order.OTHER
    if not in_space or not in_channels:
        return Order.EITHER
    if dims == in_space + in_channels:
        return Order.PIXELS
    if dims == in_channels + in_space:
        return Order.PLANES
    return Order.OTHER
