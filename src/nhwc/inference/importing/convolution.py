"""Convolutions and matrix products with constant weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.graph import Value
from nhwc.inference.importing.registry import Builder, importer
from nhwc.inference.operations import Convolution, Linear


def _constant(value: Value | None) -> torch.Tensor | None:
    return None if value is None else value.constant


def _usable(x: Any, weight: Any, bias: Any) -> bool:
    """Whether the input is placed and the weights are constants of float32."""
    if not isinstance(x, Value) or not x.is_placed or not isinstance(weight, Value) or weight.constant is None:
        return False
    constants = [weight, *([] if bias is None else [bias])]
    return all(isinstance(each, Value) and each.constant is not None and each.is_placed for each in constants)


def _spread(numbers: Sequence[int] | int, count: int) -> tuple[int, ...]:
    listed = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(listed * count if len(listed) == 1 else listed)


@importer("aten.conv2d.default", "aten.conv3d.default", "aten.conv2d.padding", "aten.conv3d.padding")
def _convolution(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not _usable(x, weight, bias) or len(x.sizes) != weight.constant.dim():
        return None
    count = weight.constant.dim() - 2
    stride, dilation = _spread(given["stride"], count), _spread(given["dilation"], count)
    padding = given["padding"]
    if isinstance(padding, str):
        spans = [d * (k - 1) for d, k in zip(dilation, weight.sizes[2:], strict=True)]
        if padding == "same" and any(span % 2 for span in spans):
            return None
        padding = [span // 2 if padding == "same" else 0 for span in spans]
    work = Convolution(
        weight.constant,
        _constant(bias),
        stride,
        _spread(padding, count),
        dilation,
        given["groups"],
        False,
        (0,) * count,
    )
    return build.emit(work, [x], node)


@importer("aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def _transposed(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not _usable(x, weight, bias) or len(x.sizes) != weight.constant.dim():
        return None
    count = weight.constant.dim() - 2
    names = ("stride", "padding", "dilation", "output_padding")
    stride, padding, dilation, extra = (_spread(given[name], count) for name in names)
    work = Convolution(weight.constant, _constant(bias), stride, padding, dilation, given["groups"], True, extra)
    return build.emit(work, [x], node)


@importer("aten.convolution.default")
def _general(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not _usable(x, weight, bias) or weight.constant.dim() not in {4, 5}:
        return None
    count = weight.constant.dim() - 2
    names = ("stride", "padding", "dilation", "output_padding")
    stride, padding, dilation, extra = (_spread(given[name], count) for name in names)
    work = Convolution(
        weight.constant, _constant(bias), stride, padding, dilation, given["groups"], given["transposed"], extra
    )
    return build.emit(work, [x], node)


@importer("aten.linear.default")
def _linear(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not _usable(x, weight, bias) or weight.constant.dim() != 2 or len(x.sizes) < 2:
        return None
    return build.emit(Linear(weight.constant, _constant(bias)), [x], node, axis=len(x.sizes) - 1)


@importer("aten.addmm.default")
def _addmm(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    bias, x, weight = given["self"], given["mat1"], given["mat2"]
    if not _usable(x, weight, bias) or given["alpha"] != 1 or given["beta"] != 1 or bias.constant.dim() != 1:
        return None
    return build.emit(Linear(weight.constant.t(), bias.constant), [x], node, axis=1)


@importer("aten.mm.default", "aten.matmul.default")
def _product(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight = given["self"], given.get("mat2", given.get("other"))
    if not _usable(x, weight, None) or weight.constant.dim() != 2 or len(x.sizes) < 2:
        return None
    return build.emit(Linear(weight.constant.t(), None), [x], node, axis=len(x.sizes) - 1)
