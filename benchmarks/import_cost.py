"""What `import nhwc` adds to `import torch`: fresh processes, each of which times the second import after the first."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from paired import arguments, interval, publish

CHILD = """
import torch, time
start = time.perf_counter()
import nhwc
print(1000 * (time.perf_counter() - start))
"""


def main() -> None:
    options = arguments(__doc__, rounds=15)
    added_ms = [
        float(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout)
        for _ in range(options.rounds)
    ]
    median, low, high = interval(lambda sample: float(np.median(sample)), added_ms)
    publish(
        {
            "claim": "adds under 50 ms",
            "added_ms": median,
            "interval_95": [low, high],
            "worst_ms": max(added_ms),
            "holds": max(added_ms) < 50,
            "samples_ms": added_ms,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
