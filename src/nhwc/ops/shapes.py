"""The shapes that operators are run on, for pictures (2) and volumes (3)."""

from __future__ import annotations

USUAL: dict[int, tuple[int, ...]] = {2: (2, 16, 12, 10), 3: (2, 16, 6, 8, 10)}
#: One sample alone: some backends are chosen by the batch size.
SINGLE: dict[int, tuple[int, ...]] = {2: (1, 16, 12, 10), 3: (1, 16, 6, 8, 10)}
#: As inside a convolutional network: 6.4 MB and 4.2 MB in float32.
LARGE: dict[int, tuple[int, ...]] = {2: (8, 64, 56, 56), 3: (2, 32, 16, 32, 32)}
EDGES: dict[int, dict[str, tuple[int, ...]]] = {
    2: {
        "one channel": (2, 1, 12, 10),
        "one pixel": (2, 16, 1, 1),
        "odd channels": (2, 7, 11, 9),
        "empty batch": (0, 16, 12, 10),
    },
    3: {
        "one channel": (2, 1, 6, 8, 10),
        "one pixel": (2, 16, 1, 1, 1),
        "odd channels": (2, 7, 5, 7, 9),
        "empty batch": (0, 16, 6, 8, 10),
    },
}
