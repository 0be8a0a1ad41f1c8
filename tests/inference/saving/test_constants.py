"""The checksum of constants: any change, anywhere, in any type."""

from __future__ import annotations

import time

import pytest
import torch

from nhwc.inference.saving.constants import checksum


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
@pytest.mark.parametrize("size", [1, 7, 4096, 10_001])
def test_every_entry_counts(dtype: torch.dtype, size: int) -> None:
    tensor = torch.zeros(size, dtype=dtype)
    before = checksum([tensor])
    for place in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[place] = 1
        assert checksum([changed]) != before
    assert checksum([tensor.clone()]) == before


def test_exchanged_blocks_other_types_and_other_sizes_count() -> None:
    tensor = torch.arange(4096.0)
    before = checksum([tensor])
    assert checksum([tensor.roll(1024)]) != before
    assert checksum([tensor.view(torch.int32)]) != before
    assert checksum([tensor[:-1]]) != before
    assert checksum([tensor[:1024], tensor[1024:]]) != checksum([tensor[1024:], tensor[:1024]])
    assert checksum([]) != before


def test_where_it_lies_in_memory_does_not_count() -> None:
    tensor = torch.randn(5001)
    assert checksum([tensor[1:]]) == checksum([tensor[1:].clone()])


def test_it_costs_milliseconds() -> None:
    tensor = torch.ones(25_000_000)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        checksum([tensor])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.1
