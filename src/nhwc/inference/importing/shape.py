"""Views, copies, concatenations and padding: what moves values and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.graph import Join, Value, View
from nhwc.inference.importing.registry import Builder, importer
from nhwc.inference.operations import Copy

_SAME = (
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.dropout.default",
    "aten.feature_dropout.default",
    "aten.alpha_dropout.default",
    "aten.feature_alpha_dropout.default",
)


@importer(*_SAME)
def _same(_build: Builder, _node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"] if "self" in given else given["input"]
    return None if given.get("train", False) else x


@importer("aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default", "aten.type_as.default")
def _converted(_build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"]
    return x if x.dtype == node.meta["val"].dtype else None


_STRIDED = (
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten.numpy_T.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.narrow.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.expand.default",
    "aten.expand_as.default",
    "aten.movedim.int",
    "aten.movedim.intlist",
    "aten.swapaxes.default",
    "aten.swapdims.default",
    "aten.diagonal.default",
)


@importer(*_STRIDED)
def _strided(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"]
    if not x.is_placed:
        return None
    shape = tuple(node.meta["val"].shape)
    kind = str(node.target).split(".")[1]
    if kind == "expand_as":
        return build.emit(View(lambda tensor: tensor.expand(shape), "expand"), [x], node)
    if shape == x.sizes and kind in {"slice", "expand", "narrow"}:
        return x
    if kind in _REORDERING:
        return build.emit(View.permuting(_permutation(node, len(x.sizes))), [x], node)
    return build.emit(View(_call(node), kind), [x], node)


_REORDERING = {"permute", "transpose", "t", "numpy_T", "movedim", "swapaxes", "swapdims"}


def _permutation(node: FxNode, rank: int) -> tuple[int, ...]:
    # no two dimensions of this sketch have the same size, so that sizes tell where each went
    seen = _call(node)(torch.empty(tuple(range(2, rank + 2)), device="meta"))
    return tuple(size - 2 for size in seen.shape)


def _call(node: FxNode) -> Callable[[torch.Tensor], torch.Tensor]:
    target, rest, keywords = node.target, node.args[1:], dict(node.kwargs)
    assert callable(target)
    return lambda tensor: target(tensor, *rest, **keywords)


@importer(
    "aten.chunk.default", "aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int", "aten.split.sizes"
)
def _parts(build: Builder, node: FxNode, given: Mapping[str, Any]) -> list[Value] | None:
    x: Value = given["self"]
    if not x.is_placed:
        return None
    whole, kind = _call(node), str(node.target).split(".")[1]

    def part(place: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda tensor: whole(tensor)[place]

    shapes = [tuple(each.shape) for each in node.meta["val"]]
    return [build.emit(View(part(place), kind), [x], node, shape) for place, shape in enumerate(shapes)]


@importer(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.view_as.default",
    "aten.reshape_as.default",
)
def _reshaped(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"]
    shape = tuple(node.meta["val"].shape)
    if not x.is_placed:
        return None
    if shape == x.sizes:
        return x
    return build.emit(reshaping(shape), [x], node)


def reshaping(shape: tuple[int, ...]) -> View:
    """A view in another shape, which needs a copy where the strides do not allow it."""
    return View(lambda tensor: tensor.view(shape), "reshape")


@importer("aten.cat.default")
def _joined(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    values = given["tensors"]
    if not all(isinstance(each, Value) and each.is_placed for each in values):
        return None
    rank = len(node.meta["val"].shape)
    full: list[Value] = [
        each for each in values if each.sizes != (0,)
    ]  # torch lets an empty list of numbers join anything
    if len(full) == 1:
        return full[0]
    return build.emit(Join(given["dim"] % rank), full, node)


@importer("aten.stack.default")
def _stacked(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    values = given["tensors"]
    if not all(isinstance(each, Value) and each.is_placed for each in values):
        return None
    dim = given["dim"] % len(node.meta["val"].shape)
    shape = (*values[0].sizes[:dim], 1, *values[0].sizes[dim:])
    apart = [build.emit(reshaping(shape), [each], node, shape) for each in values]
    return build.emit(Join(dim), apart, node)


@importer("aten.pad.default", "aten.constant_pad_nd.default")
def _padded(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"]
    numbers = given["pad"]
    if not x.is_placed or given.get("mode", "constant") != "constant" or min(numbers, default=0) < 0:
        return None
    if not any(numbers):
        return x
    rank = len(x.sizes)
    if rank not in {4, 5}:
        return None
    pairs = [(numbers[2 * i], numbers[2 * i + 1]) for i in range(len(numbers) // 2)][::-1]
    by_dim = [(0, 0)] * (rank - len(pairs)) + pairs
    value = float(given.get("value") or 0.0)
    if not any(by_dim[0] + by_dim[1]):
        return build.emit(Copy(tuple(by_dim[2:]), value), [x], node)
    if any(by_dim[0] + by_dim[-1]):
        return None
    return _padded_in_the_middle(build, node, x, Copy(tuple(by_dim[1:-1]), value))


def _padded_in_the_middle(build: Builder, node: FxNode, x: Value, work: Copy) -> Value:
    """Padding of (N, *spatial, C): of a view as (N, C, *spatial)."""
    rank = len(x.sizes)
    order, back = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    shape = tuple(node.meta["val"].shape)
    turned = build.emit(View.permuting(order), [x], node, tuple(x.sizes[dim] for dim in order))
    padded = build.emit(work, [turned], node, tuple(shape[dim] for dim in order))
    return build.emit(View.permuting(back), [padded], node)


@importer("aten.roll.default")
def _rolled(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x: Value = given["self"]
    if not x.is_placed or not given["dims"]:
        return None
    for shift, dim in zip(given["shifts"], given["dims"], strict=True):
        size = x.sizes[dim]
        start = size - shift % size if size else 0
        if start != size:
            parts = [_cut(build, node, x, dim, *ends) for ends in ((start, size), (0, start))]
            x = build.emit(Join(dim % len(x.sizes)), parts, node)
    return x


def _cut(build: Builder, node: FxNode, x: Value, dim: int, start: int, end: int) -> Value:
    shape = list(x.sizes)
    shape[dim] = end - start
    return build.emit(View(lambda each: each.narrow(dim, start, end - start), "slice"), [x], node, tuple(shape))
