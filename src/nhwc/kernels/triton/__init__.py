"""The kernels on a GPU: what they replace there. Their programs in Triton are imported at the first call.

Each file adds replacements at CUDA's dispatch keys to the kernels that the file of its family registered.
"""

from __future__ import annotations

from nhwc.kernels.triton import conversion, grid_sample, norm, pool_average

__all__ = ["conversion", "grid_sample", "norm", "pool_average"]
