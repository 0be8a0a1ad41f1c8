"""Steps that the engine runs: one file per algorithm or family, each registers its candidates for an operation."""

from nhwc.inference.steps import (
    copying,
    depthwise,
    direct,
    elementwise,
    grouped,
    inverted_residual,
    linear,
    normalization,
    pooling,
    resampling,
    softmax,
    transposed,
    winograd,
)

__all__ = [
    "copying",
    "depthwise",
    "direct",
    "elementwise",
    "grouped",
    "inverted_residual",
    "linear",
    "normalization",
    "pooling",
    "resampling",
    "softmax",
    "transposed",
    "winograd",
]
