"""Level three on a GPU: kernels by which cuDNN rewrites a convolution's operands, told by their names in a profile.

A convolution in contiguous format on tensor cores shows nchwToNhwcKernel before it and nhwcToNchwKernel after it.
Not run on a GPU by this project's own tests: they feed made-up events. The event methods (name, linked_correlation_id,
duration_ns) were read from torch 2.11 to 2.14.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nhwc.model import Reorder

_LAYOUT_KERNEL = re.compile(r"(nchw|nhwc)to(nchw|nhwc)", re.IGNORECASE)


def layout_kernels(events: Iterable[Any]) -> dict[int, list[Reorder]]:
    """Correlation id of the operator that launched it → reorders; a kernel's name tells no shape and no bytes."""
    found: dict[int, list[Reorder]] = {}
    for event in events:
        formats = _LAYOUT_KERNEL.search(event.name())
        launcher = event.linked_correlation_id()
        if formats is None or launcher <= 0:
            continue
        before, after = formats.group(1).lower(), formats.group(2).lower()
        operand = "src" if after == "nhwc" else "dst"
        found.setdefault(launcher, []).append(
            Reorder("cuDNN", operand, before, after, (), 0, event.duration_ns() / 1e6)
        )
    return found
