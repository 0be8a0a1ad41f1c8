"""Activations' gradients follow the input's format, whatever layout the incoming gradient has."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample, canonical, dtypes

import nhwc
from nhwc.kernels.activation import ACTIVATION

CALLS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "mish": F.mish,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "logsigmoid": F.logsigmoid,
    "logit": lambda x: torch.logit(x.sigmoid(), 1e-3),
}
SAMPLES = [Sample(name, call, ((2, 6, 5, 7),)) for name, call in CALLS.items()]
SAMPLES += [Sample("silu 3-D", F.silu, ((2, 4, 3, 5, 4),)), Sample("relu6 3-D", F.relu6, ((2, 4, 3, 5, 4),))]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)


@every
@dtypes
def test_gradients_are_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout("activation_backward", sample, dtype)


@every
@dtypes
@pytest.mark.parametrize("how", ["contiguous", "expanded", "channels_last"])
def test_values_are_torchs_to_the_bit(sample: Sample, dtype: torch.dtype, how: str) -> None:
    plain = conformance.run(sample, sample.operands(dtype), how)
    with nhwc.kernels.use("activation_backward"):
        found = conformance.run(sample, sample.operands(dtype), how)
    for one, other in zip(plain[1], found[1], strict=True):
        torch.testing.assert_close(other, one)


@every
def test_derivatives(sample: Sample) -> None:
    conformance.check_derivatives("activation_backward", sample)


@pytest.mark.parametrize("pool", [lambda x: x.mean((2, 3)), lambda x: F.adaptive_avg_pool2d(x, 1), torch.sum])
@pytest.mark.parametrize("name", ["silu", "hardswish", "relu6", "relu"])
def test_a_global_pool_after_it_sends_channels_last_back(name: str, pool: object) -> None:
    x = canonical(torch.randn(2, 6, 5, 7)).requires_grad_()
    with nhwc.kernels.use("activation_backward"):
        (gradient,) = torch.autograd.grad(pool(CALLS[name](x)).sum(), x)  # type: ignore[operator]
    assert conformance.is_canonical(gradient)


def test_every_replaced_backward_is_reached_by_an_activation_above() -> None:
    reached: set[str] = set()
    with nhwc.kernels.use("activation_backward"):
        for sample in SAMPLES:
            x = sample.operands(torch.float32)
            trace = nhwc.record(lambda x=x, sample=sample: torch.autograd.grad(sample.call(*x).sum(), x))
            reached |= {call.operator.removesuffix(".default").replace(".", "::") for call in trace.calls}
    assert set(ACTIVATION.operators) <= reached


@pytest.mark.parametrize("name", ["hardswish", "silu", "relu6", "relu", "leaky_relu", "hardsigmoid", "sigmoid", "tanh"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3.0, -3.0, 0.0, 6.0])
def test_special_values_are_torchs_with_an_expanded_gradient(name: str, value: float) -> None:
    x = canonical(torch.full((1, 64, 4, 4), value)).requires_grad_()
    gradient = torch.tensor(2.0).expand(x.shape)
    (expected,) = torch.autograd.grad(CALLS[name](x), x, gradient)
    with nhwc.kernels.use("activation_backward"):
        (found,) = torch.autograd.grad(CALLS[name](x), x, gradient)
    torch.testing.assert_close(found, expected, equal_nan=True)
