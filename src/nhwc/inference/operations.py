"""What the engine computes itself, as data: each operation with its weights, apart from how and where it is run.

Spatial tuples have an entry per spatial dimension: two for images, three for volumes. Tensors are float32 and constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from nhwc.inference.native import Activation


@dataclass(frozen=True, eq=False)
class Convolution:
    """aten.convolution over (N, C, H, W) or (N, C, D, H, W).

    weight: (K, C / groups, *kernel), or transposed (C, K / groups, *kernel). padding is alike on both sides.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Linear:
    """weight: (K, C), over the last dimension of (..., C) into (..., K); bias: (K,) or None.

    narrow: a type of 16 bits in which the weight may be kept where that is faster.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    narrow: torch.dtype | None = None


@dataclass(frozen=True, eq=False)
class InvertedResidual:
    """A 1x1 convolution to many channels, a depthwise one over them, a 1x1 convolution to few, of images.

    Either 1x1 convolution may be None. inner: the epilogues of all but the last that is there, without
    addends; the request's own epilogue and addend are the last one's.
    """

    expand: Convolution | None
    depthwise: Convolution
    project: Convolution | None
    inner: tuple[Fused, ...]


@dataclass(frozen=True)
class Pool:
    """Maximum or average over windows; ceil_mode is in the output's size already."""

    kind: Literal["maximum", "average"]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    count_include_pad: bool = True
    divisor: int | None = None


@dataclass(frozen=True)
class AdaptivePool:
    """Adaptive maximum or average; the output's size says the windows. Global pooling has an output of ones."""

    kind: Literal["maximum", "average"]


@dataclass(frozen=True)
class Resample:
    """Nearest, bilinear or trilinear interpolation to the output's size.

    scales: what the user gave, one per spatial dimension, None where the size decides.
    """

    mode: Literal["nearest", "linear"]
    align_corners: bool
    scales: tuple[float | None, ...]

    def without_doubt(self, before: Sequence[int], after: Sequence[int]) -> Resample:
        """Without scales where they and the sizes tell different nearest neighbours, and some kernels of torch go by
        the sizes: where those stay or double.
        """
        kept = tuple(
            None if scale and grown in {size, 2 * size} and scale * size != grown else scale
            for size, grown, scale in zip(before, after, self.scales, strict=True)
        )
        return self if self.mode == "linear" or kept == self.scales else replace(self, scales=kept)


#: One operation of an elementwise chain. "input" reads operand ``index``; the others are functions of earlier results.
@dataclass(frozen=True)
class Term:
    """kind: "input", "constant", "activation", "add", "subtract", "multiply", "divide", "maximum", "minimum", "power",
    "exp", "log", "sqrt", "rsqrt", "abs", "negate", "reciprocal", "erf". operands: places of earlier terms.
    index: of the input. value: of a constant, and the exponent of a power. activation with lo, hi as Epilogue has it.
    """

    kind: str
    operands: tuple[int, ...] = ()
    index: int = 0
    value: float = 0.0
    activation: Activation = Activation.NONE
    lo: float = 0.0
    hi: float = 0.0


@dataclass(frozen=True)
class Elementwise:
    """A chain of pointwise operations over inputs that broadcast to the output; its last term is the result."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, eq=False)
class Normalization:
    """Over each picture's groups of channels with their pixels ("group", "instance": groups == channels), or over
    the last dimension of each row ("layer"), which for (N, C, H, W) in channels last means over C per pixel.

    weight, bias: (C,) or None.
    """

    kind: Literal["group", "instance", "layer"]
    groups: int
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float


@dataclass(frozen=True)
class Softmax:
    """Over the densest dimension of each row; log: its logarithm."""

    log: bool = False


@dataclass(frozen=True)
class Mean:
    """Over all spatial dimensions of channels-last rows, kept as ones or not as the output has it."""


@dataclass(frozen=True)
class Copy:
    """The input's values in the output's strides; padding surrounds it, per spatial dimension (before, after)."""

    padding: tuple[tuple[int, int], ...] = ()
    value: float = 0.0


Operation = (
    Convolution
    | InvertedResidual
    | Linear
    | Pool
    | AdaptivePool
    | Resample
    | Elementwise
    | Normalization
    | Softmax
    | Mean
    | Copy
)


@dataclass(frozen=True, eq=False)
class Fused:
    """An epilogue: activation(result + addend), or with addend_last activation(result) + addend.

    slope: (C,), of PRELU. Whether there is an addend is told where tensors are placed.
    """

    activation: Activation = Activation.NONE
    lo: float = 0.0
    hi: float = 0.0
    slope: torch.Tensor | None = None
    addend_last: bool = False
