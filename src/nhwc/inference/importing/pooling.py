"""Pooling, interpolation, means over pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch.fx import Node as FxNode

from nhwc.inference.graph import Value
from nhwc.inference.importing.registry import Builder, importer
from nhwc.inference.operations import AdaptivePool, Mean, Pool, Resample


def _pictures(x: Any, spatial: int) -> bool:
    return isinstance(x, Value) and x.is_placed and len(x.sizes) == spatial + 2


def _spread(numbers: Sequence[int] | int, count: int) -> tuple[int, ...]:
    listed = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(listed * count if len(listed) == 1 else listed)


def _spatial(node: FxNode) -> int:
    return 3 if "3d" in str(node.target) else 2


@importer("aten.max_pool2d.default", "aten.max_pool3d.default")
def _maximum(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, count = given["self"], _spatial(node)
    if not _pictures(x, count):
        return None
    kernel = _spread(given["kernel_size"], count)
    stride = _spread(given["stride"] or kernel, count)
    padding, dilation = _spread(given["padding"], count), _spread(given["dilation"], count)
    return build.emit(Pool("maximum", kernel, stride, padding, dilation), [x], node)


@importer("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _average(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, count = given["self"], _spatial(node)
    if not _pictures(x, count):
        return None
    kernel = _spread(given["kernel_size"], count)
    stride, padding = _spread(given["stride"] or kernel, count), _spread(given["padding"], count)
    work = Pool("average", kernel, stride, padding, (1,) * count, given["count_include_pad"], given["divisor_override"])
    return build.emit(work, [x], node)


@importer("aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default")
def _adaptive_average(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _adaptive(build, node, given, "average")


@importer("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def _adaptive_maximum(build: Builder, node: FxNode, given: Mapping[str, Any]) -> list[Value | None] | None:
    if any(user.args[1] != 0 and user.users for user in node.users):
        return None  # the indices are wanted
    pooled = _adaptive(build, node, given, "maximum", tuple(node.meta["val"][0].shape))
    return None if pooled is None else [pooled, None]


def _adaptive(
    build: Builder,
    node: FxNode,
    given: Mapping[str, Any],
    kind: Literal["maximum", "average"],
    shape: tuple[int, ...] | None = None,
) -> Value | None:
    x: Value = given["self"]
    if not _pictures(x, _spatial(node)):
        return None
    shape = shape or tuple(node.meta["val"].shape)
    if shape == x.sizes:
        return x  # every window is one pixel
    return build.emit(AdaptivePool(kind), [x], node, shape)


@importer("aten.mean.dim")
def _mean(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, dims = given["self"], given["dim"]
    if not isinstance(x, Value) or not x.is_placed or given["dtype"] is not None or not dims:
        return None
    rank = len(x.sizes)
    over = sorted(dim % rank for dim in dims)
    return build.emit(Mean(), [x], node) if rank in {4, 5} and over == list(range(2, rank)) else None


@importer("aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def _nearest(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _resample(build, node, given, "nearest", given["scale_factors"])


@importer("aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec")
def _linear(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _resample(build, node, given, "linear", given["scale_factors"])


@importer("aten.upsample_nearest2d.default", "aten.upsample_bilinear2d.default")
def _by_size(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    mode: Literal["nearest", "linear"] = "nearest" if "nearest" in str(node.target) else "linear"
    return _resample(build, node, given, mode, (given["scales_h"], given["scales_w"]))


def _resample(
    build: Builder,
    node: FxNode,
    given: Mapping[str, Any],
    mode: Literal["nearest", "linear"],
    scales: Sequence[float | None] | None,
) -> Value | None:
    x, count = given.get("self", given.get("input")), _spatial(node)
    if not _pictures(x, count):
        return None
    known = (None,) * count if scales is None else tuple(scales)
    work = Resample(mode, bool(given.get("align_corners", False)), known)
    return build.emit(_settled(work, node), [x], node)


def _settled(work: Resample, node: FxNode) -> Resample:
    """Without the scales that torch does not follow: some of its kernels do, by the input's size and format."""
    x, size = node.all_input_nodes[0].meta["val"], list(node.meta["val"].shape[2:])
    plain = work.without_doubt(x.shape[2:], size)
    if plain is work:
        return work
    numbers = torch.arange(math.prod(x.shape), dtype=torch.float64, device="cpu").view(x.shape)
    asked = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu").copy_(numbers)
    nearest = torch.ops.aten.upsample_nearest2d if len(size) == 2 else torch.ops.aten.upsample_nearest3d
    return plain if torch.equal(nearest(asked, size, *work.scales), nearest(asked, size, *plain.scales)) else work
