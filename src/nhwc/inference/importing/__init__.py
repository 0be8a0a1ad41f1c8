"""Operators of torch as nodes of our own: one file per family, each registers its importers."""

from nhwc.inference.importing import convolution, norm, pointwise, pooling, shape
from nhwc.inference.importing.walk import imported

__all__ = ["convolution", "imported", "norm", "pointwise", "pooling", "shape"]
