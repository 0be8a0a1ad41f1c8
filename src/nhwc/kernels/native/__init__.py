"""The compiled kernels: a C++ library without torch headers, on torch's own threads."""

from __future__ import annotations

from nhwc.kernels.native.library import Function, dtype_code, is_available, status

__all__ = ["Function", "dtype_code", "is_available", "status"]
