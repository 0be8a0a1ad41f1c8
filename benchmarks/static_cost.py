"""What a static audit costs: a training step of resnet152 at batch 256, in its own process: seconds, peak memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from paired import arguments, publish

CHILD = """
import json, resource, time
import torch
from torchvision.models import resnet152
import nhwc
from nhwc.api import fake_mode
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
with fake_mode():
    model = resnet152(weights=None)
    images = torch.empty(256, 3, 224, 224)
report = nhwc.audit(model, images, train=True, static=True)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
calls = len(report.trace.calls)
print(json.dumps({"seconds": seconds, "peak_mib": peak / 1024, "imports_mib": before / 1024, "calls": calls}))
"""


def main() -> None:
    options = arguments(__doc__, rounds=5)
    runs = []
    for _ in range(options.rounds):
        finished = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
        runs.append(json.loads(finished.stdout.splitlines()[-1]))
    seconds = [run["seconds"] for run in runs]
    peaks = [run["peak_mib"] for run in runs]
    publish(
        {
            "claim": "under 10 s and under 2048 MiB",
            "median_seconds": statistics.median(seconds),
            "worst_seconds": max(seconds),
            "worst_peak_mib": max(peaks),
            "holds": max(seconds) < 10 and max(peaks) < 2048,
            "runs": runs,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
