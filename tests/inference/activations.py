"""What torch has for each of the engine's activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from nhwc.inference.native import Activation


@dataclass(frozen=True)
class Reference:
    """An activation's constants, as Epilogue has them, and torch's own function with these."""

    lo: float
    hi: float
    exact: Callable[[torch.Tensor], torch.Tensor]


#: All but PRELU, whose slopes are a tensor.
REFERENCES = {
    Activation.NONE: Reference(0.0, 0.0, lambda x: x),
    Activation.CLAMP: Reference(-0.5, 6.0, lambda x: x.clamp(-0.5, 6.0)),
    Activation.LEAKY_RELU: Reference(0.1, 0.0, lambda x: functional.leaky_relu(x, 0.1)),
    Activation.SILU: Reference(0.0, 0.0, functional.silu),
    Activation.HARDSWISH: Reference(0.0, 0.0, functional.hardswish),
    Activation.HARDSIGMOID: Reference(0.0, 0.0, functional.hardsigmoid),
    Activation.SIGMOID: Reference(0.0, 0.0, torch.sigmoid),
    Activation.GELU: Reference(0.0, 0.0, functional.gelu),
    Activation.GELU_TANH: Reference(0.0, 0.0, lambda x: functional.gelu(x, approximate="tanh")),
    Activation.TANH: Reference(0.0, 0.0, torch.tanh),
    Activation.ELU: Reference(1.3, 0.0, lambda x: functional.elu(x, 1.3)),
    Activation.MISH: Reference(0.0, 0.0, functional.mish),
    Activation.SOFTPLUS: Reference(2.0, 20.0, lambda x: functional.softplus(x, 2.0, 20.0)),
}
