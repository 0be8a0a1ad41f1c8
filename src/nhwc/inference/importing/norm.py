"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.graph import Affine, Value
from nhwc.inference.importing.registry import Builder, importer
from nhwc.inference.operations import Normalization, Softmax


def _constants(*values: Any) -> bool:
    """Whether each is None or a constant of float32."""
    return all(each is None or (each.constant is not None and each.is_placed) for each in values)


def _tensor(value: Value | None) -> torch.Tensor | None:
    return None if value is None else value.constant


@importer("aten.batch_norm.default")
def _batch_norm(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, mean, variance = given["input"], given["running_mean"], given["running_var"]
    weight, bias = given["weight"], given["bias"]
    if given["training"] or mean is None or variance is None or not x.is_placed:
        return None
    if not _constants(mean, variance, weight, bias):
        return None
    scale = (variance.constant.double() + given["eps"]).rsqrt()
    if weight is not None:
        scale = scale * weight.constant.double()
    shift = -mean.constant.double() * scale
    if bias is not None:
        shift = shift + bias.constant.double()
    return build.emit(Affine(scale, shift, 1), [x], node)


@importer("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_core(build: Builder, node: FxNode, given: Mapping[str, Any]) -> list[Any] | None:
    if any(user.args[1] != 0 and user.users for user in node.users):
        return None
    normalized = _batch_norm(build, _first(node), {**given, "training": False})
    return None if normalized is None else [normalized, None, None]


def _first(node: FxNode) -> FxNode:
    return next(iter(node.users))


@importer("aten.layer_norm.default")
def _layer_norm(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not x.is_placed or len(given["normalized_shape"]) != 1 or len(x.sizes) < 2 or not _constants(weight, bias):
        return None
    work = Normalization("layer", 1, _tensor(weight), _tensor(bias), given["eps"])
    return build.emit(work, [x], node, axis=len(x.sizes) - 1)


@importer("aten.group_norm.default")
def _group_norm(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not x.is_placed or len(x.sizes) not in {4, 5} or not _constants(weight, bias):
        return None
    work = Normalization("group", given["num_groups"], _tensor(weight), _tensor(bias), given["eps"])
    return build.emit(work, [x], node)


@importer("aten.instance_norm.default")
def _instance_norm(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not given["use_input_stats"] or not x.is_placed or len(x.sizes) not in {4, 5} or not _constants(weight, bias):
        return None
    work = Normalization("instance", x.sizes[1], _tensor(weight), _tensor(bias), given["eps"])
    return build.emit(work, [x], node)


@importer("aten.softmax.int", "aten._softmax.default", "aten.log_softmax.int", "aten._log_softmax.default")
def _softmax(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x = given["self"]
    if not x.is_placed or given.get("dtype") not in {None, torch.float32} or len(x.sizes) < 2:
        return None
    return build.emit(Softmax("log" in str(node.target)), [x], node, axis=given["dim"] % len(x.sizes))
