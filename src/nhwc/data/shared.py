"""Memory for a batch: in a worker of a DataLoader that which its parent can map, so that nothing is copied again.

Private interface, read from torch 2.11 to 2.14: ``UntypedStorage._new_shared``, which ``default_collate`` uses as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.utils.data import get_worker_info

from nhwc.kernels.layouts import in_huge_pages


def empty_rows(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A fresh contiguous tensor of ``shape``, dtype and device as ``like``."""
    if get_worker_info() is None or like.device.type != "cpu":
        return in_huge_pages(torch.empty(tuple(shape), dtype=like.dtype, device=like.device))
    size = math.prod(shape) * like.element_size()
    storage = torch.UntypedStorage._new_shared(size, device="cpu")  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=like.dtype, device="cpu").set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]
