"""Pointwise operators: activations, arithmetic with constants and with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node as FxNode

from nhwc.inference.graph import Affine, Value
from nhwc.inference.importing.registry import Builder, importer
from nhwc.inference.native import Activation
from nhwc.inference.operations import Elementwise, Term

_X = Term("input")


def _unary(build: Builder, node: FxNode, x: Any, *terms: Term) -> Value | None:
    if not isinstance(x, Value) or not x.is_placed:
        return None
    return build.emit(Elementwise((_X, *terms)), [x], node)


def _activation(kind: Activation, lo: float = 0.0, hi: float = 0.0) -> Term:
    return Term("activation", (0,), activation=kind, lo=float(lo), hi=float(hi))


_FIXED: dict[str, Term] = {
    "relu": _activation(Activation.CLAMP, 0.0, math.inf),
    "relu6": _activation(Activation.CLAMP, 0.0, 6.0),
    "silu": _activation(Activation.SILU),
    "hardswish": _activation(Activation.HARDSWISH),
    "hardsigmoid": _activation(Activation.HARDSIGMOID),
    "sigmoid": _activation(Activation.SIGMOID),
    "tanh": _activation(Activation.TANH),
    "mish": _activation(Activation.MISH),
    **{kind: Term(kind, (0,)) for kind in ("exp", "log", "sqrt", "rsqrt", "abs", "reciprocal", "erf")},
    "neg": Term("negate", (0,)),
}


@importer(*[f"aten.{name}.default" for name in _FIXED])
def _fixed(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _unary(build, node, given["self"], _FIXED[str(node.target).split(".")[1]])


@importer("aten.hardtanh.default")
def _hardtanh(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _unary(build, node, given["self"], _activation(Activation.CLAMP, given["min_val"], given["max_val"]))


@importer("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default")
def _clamp(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    lo = -math.inf if given.get("min") is None else given["min"]
    hi = math.inf if given.get("max") is None else given["max"]
    return _unary(build, node, given["self"], _activation(Activation.CLAMP, lo, hi))


@importer("aten.leaky_relu.default")
def _leaky_relu(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _unary(build, node, given["self"], _activation(Activation.LEAKY_RELU, given["negative_slope"]))


@importer("aten.elu.default")
def _elu(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    if given["scale"] != 1 or given["input_scale"] != 1:
        return None
    return _unary(build, node, given["self"], _activation(Activation.ELU, given["alpha"]))


@importer("aten.softplus.default")
def _softplus(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _unary(build, node, given["self"], _activation(Activation.SOFTPLUS, given["beta"], given["threshold"]))


@importer("aten.gelu.default")
def _gelu(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    kind = Activation.GELU_TANH if given["approximate"] == "tanh" else Activation.GELU
    return _unary(build, node, given["self"], _activation(kind))


@importer("aten.square.default")
def _square(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _unary(build, node, given["self"], Term("multiply", (0, 0)))


@importer("aten.pow.Tensor_Scalar")
def _power(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    exponent = given["exponent"]
    if not isinstance(exponent, int | float):
        return None
    if exponent == 2:
        return _unary(build, node, given["self"], Term("multiply", (0, 0)))
    if abs(exponent) == 0.5:  # torch's way, which C's pow leaves at -inf and -0
        return _unary(build, node, given["self"], Term("sqrt" if exponent > 0 else "rsqrt", (0,)))
    return _unary(build, node, given["self"], Term("power", (0,), value=float(exponent)))


def _as_number(operand: Any) -> float | None:
    """A Python number, or a constant of one element and no more dimensions than a number has."""
    if isinstance(operand, int | float) and not isinstance(operand, bool):
        return float(operand)
    if isinstance(operand, Value) and operand.constant is not None and operand.sizes == ():
        held = operand.constant
        return float(held) if held.dtype.is_floating_point else None
    return None


def _along(constant: torch.Tensor, shape: tuple[int, ...]) -> int | None:
    """The one dimension of ``shape`` along which a constant that broadcasts to it varies."""
    padded = (1,) * (len(shape) - constant.dim()) + tuple(constant.shape)
    varying = [dim for dim, size in enumerate(padded) if size != 1]
    return varying[0] if len(varying) == 1 and padded[varying[0]] == shape[varying[0]] else None


def _affine(build: Builder, node: FxNode, kind: str, x: Value, constant: torch.Tensor) -> Value | None:
    """x combined with one number per channel, where it is one."""
    shape = tuple(node.meta["val"].shape)
    dim = _along(constant, shape)
    if dim is None or x.sizes != shape:
        return None
    number = constant.double().flatten()
    one, zero = torch.ones_like(number), torch.zeros_like(number)
    scale, shift = {
        "add": (one, number),
        "subtract": (one, -number),
        "multiply": (number, zero),
        "divide": (number.reciprocal(), zero),
    }[kind]
    return build.emit(Affine(scale, shift, dim), [x], node)


def _binary(build: Builder, node: FxNode, kind: str, left: Any, right: Any) -> Value | None:
    inputs: list[Value] = []
    terms: list[Term] = []
    for operand in (left, right):
        number = _as_number(operand)
        if number is not None:
            terms.append(Term("constant", value=number))
        elif isinstance(operand, Value) and operand.is_placed:
            terms.append(Term("input", index=len(inputs)))
            inputs.append(operand)
        else:
            return None
    moving = [each for each in inputs if each.constant is None]
    if not moving:
        return None
    fixed = [each for each in inputs if each.constant is not None]
    ordered = kind in {"add", "multiply"} or (kind in {"subtract", "divide"} and moving[0] is left)
    if len(fixed) == 1 and ordered and fixed[0].constant is not None:
        scaled = _affine(build, node, kind, moving[0], fixed[0].constant)
        if scaled is not None:
            return scaled
    return build.emit(Elementwise((*terms, Term(kind, (0, 1)))), inputs, node)


_BINARY: dict[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "maximum": "maximum",
    "minimum": "minimum",
}


@importer(
    *[f"aten.{name}.{form}" for name in ("add", "sub", "mul", "div") for form in ("Tensor", "Scalar")],
    "aten.maximum.default",
    "aten.minimum.default",
)
def _arithmetic(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    if given.get("alpha", 1) != 1:
        return None
    return _binary(build, node, _BINARY[str(node.target).split(".")[1]], given["self"], given["other"])


@importer("aten.rsub.Scalar")
def _reverse(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    return _binary(build, node, "subtract", given["other"], given["self"]) if given["alpha"] == 1 else None


@importer("aten.prelu.default")
def _prelu(build: Builder, node: FxNode, given: Mapping[str, Any]) -> Value | None:
    x, slope = given["self"], given["weight"]
    if not x.is_placed or slope.constant is None or slope.constant.dtype != torch.float32 or len(x.sizes) < 2:
        return None
    if slope.constant.numel() == 1:
        kind = _activation(Activation.LEAKY_RELU, float(slope.constant))
        return _unary(build, node, x, kind)
    shaped = Value(f"{slope.name}.shaped", (1, -1, *[1] * (len(x.sizes) - 2)), torch.float32)
    shaped.constant = slope.constant.reshape(shaped.sizes)
    shaped.shape = tuple(shaped.constant.shape)
    positive = Term("activation", (0,), activation=Activation.CLAMP, lo=0.0, hi=math.inf)
    negative = Term("activation", (0,), activation=Activation.CLAMP, lo=-math.inf, hi=0.0)
    terms = (_X, Term("input", index=1), positive, negative, Term("multiply", (3, 1)), Term("add", (2, 4)))
    return build.emit(Elementwise(terms), [x, shaped], node)
