"""The types that programs compute in, under Triton's names."""

from __future__ import annotations

from typing import Any

import torch


def sums_of(dtype: torch.dtype) -> torch.dtype:
    """What sums over numbers of a type are kept in: float32, float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def in_triton(dtype: torch.dtype) -> Any:
    """Triton's float32 or float64."""
    import triton.language

    return triton.language.float64 if dtype == torch.float64 else triton.language.float32
