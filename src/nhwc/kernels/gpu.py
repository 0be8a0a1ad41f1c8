"""Which kernels can run on a GPU here: compositions wherever there is CUDA, Triton's where it can be imported too.

TRITON_INTERPRET=1 in the environment, set before triton is imported, has its interpreter run them on the CPU's tensors:
slow, and how they are tested without a GPU.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Sequence
from functools import cache

import torch

from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import lies_channels_last

#: What they compute in and answer with; sums are in float32, in float64 for float64.
DTYPES = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_LONGEST = 2**15
#: Offsets within one sample are 32-bit numbers, with room for the last tile to reach beyond its end.
LARGEST_SAMPLE = 2**31 - 2**16


@cache
def is_interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def is_present() -> bool:
    """Whether torch sees a GPU, which AMD's are to it as well."""
    return torch.cuda.is_available()


@cache
def has_triton() -> bool:
    """Whether there is a GPU, and triton is installed."""
    return is_present() and importlib.util.find_spec("triton") is not None


def reaches(tensor: torch.Tensor) -> bool:
    """Whether Triton's kernels can run on the memory of ``tensor``."""
    return is_interpreted() if tensor.is_cpu else tensor.is_cuda and has_triton()


def serves(tensor: torch.Tensor) -> bool:
    """Whether they take ``tensor``: a plain channels-last one on the GPU, not empty, of a dtype that they know."""
    return (
        reaches(tensor)
        and is_plain(tensor)
        and lies_channels_last(tensor)
        and tensor.dtype in DTYPES
        and tensor.numel() > 0
        and tensor.numel() // tensor.shape[0] < LARGEST_SAMPLE
    )


def serves_pooling(input: torch.Tensor, outputs: Sequence[int], rank: int) -> bool:  # noqa: A002 torch's name
    """Whether they pool ``input``, of this rank, to ``outputs`` pixels per dimension."""
    if input.dim() != rank or not serves(input) or len(outputs) != rank - 2:
        return False
    # a place in one dimension times a size in it stays a 32-bit number
    return all(0 < each < _LONGEST for each in outputs) and max(input.shape[2:]) < _LONGEST


def on_device_of(tensor: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """A block in which programs run where ``tensor`` lies: they start on the current device's stream."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def tile(rows: int, columns: int, elements: int = 4096, widest: int = 128) -> tuple[int, int]:
    """Rows and columns, powers of two, of a tile over so many: whole rows first, up to ``widest``.

    >>> tile(1000, 64), tile(1000, 3), tile(5, 3)
    ((64, 64), (1024, 4), (8, 4))
    """
    across = min(power_of_two(columns), widest)
    return min(power_of_two(rows), elements // across), across


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller than ``number`` (1 or more)."""
    return 1 << (number - 1).bit_length()


def blocks(number: int, size: int) -> int:
    """How many blocks of ``size`` cover ``number``."""
    return -(number // -size)


def has_shape(tensor: torch.Tensor, shape: Sequence[int], like: torch.Tensor) -> bool:
    """Whether ``tensor`` is a plain one of this shape, of the dtype of ``like`` and beside it; its layout is open."""
    return (
        is_plain(tensor)
        and tensor.dtype == like.dtype
        and tensor.device == like.device
        and tuple(tensor.shape) == tuple(shape)
    )
