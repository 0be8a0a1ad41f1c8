"""Autocast as parts of variants."""

from __future__ import annotations

import functools

import torch

from nhwc.machine import instruction_flags
from nhwc.variants.registry import Kind, part
from nhwc.variants.setup import Setup

#: The part that puts a forward pass under autocast → what it computes in.
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_CPU_FLOAT16 = {"avx512_fp16", "amx_fp16", "fphp"}


def _no_bfloat16(device: torch.device) -> str:
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "this GPU has no bfloat16 arithmetic"
    return ""


def _no_float16(device: torch.device) -> str:
    if device.type == "cpu" and not _CPU_FLOAT16 & instruction_flags():
        return "this processor has no float16 arithmetic"
    return ""


@part("bf16", Kind.PRECISION, "under autocast to bfloat16", _no_bfloat16)
def bf16(setup: Setup) -> None:
    """Forward passes under autocast to bfloat16."""
    _autocast(setup, DTYPES["bf16"])


@part("fp16", Kind.PRECISION, "under autocast to float16, with loss scaling in training", _no_float16)
def fp16(setup: Setup) -> None:
    """Forward passes under autocast to float16."""
    _autocast(setup, DTYPES["fp16"])


def _autocast(setup: Setup, dtype: torch.dtype) -> None:
    setup.dtype = dtype
    setup.during_forward.append(functools.partial(torch.autocast, setup.device.type, dtype=dtype))
