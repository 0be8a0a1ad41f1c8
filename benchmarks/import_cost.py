"""What `import nhwc` adds to `import torch`, in fresh processes, in turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from paired import alternate, arguments, interval, median_difference, publish


def importing(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    options = arguments(__doc__, rounds=15)
    samples = alternate({"torch": importing("import torch"), "both": importing("import torch, nhwc")}, options.rounds)
    added, low, high = interval(median_difference, samples["both"], samples["torch"])
    publish(
        {
            "claim": "adds under 50 ms",
            "added_ms": added,
            "interval_95": [low, high],
            "holds": added < 50,
            "samples_ms": samples,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
