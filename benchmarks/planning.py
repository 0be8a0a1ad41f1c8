"""How long a plan takes: the first time on a machine, and in another process from what the first one kept.

    python benchmarks/planning.py -o benchmarks/results/planning.json [--model resnet50] [--batch 8] [--again 3]

Seconds are those of the call alone: without the imports of torch and nhwc and without building the model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torchvision
from paired import publish

from nhwc.api import plan_formats

_FIRST_S, _AGAIN_S = 60.0, 2.0


def once(model: str, batch: int) -> dict[str, Any]:
    """Plan once, in this process."""
    net = torchvision.models.get_model(model).eval()
    inputs = torch.randn(batch, 3, 224, 224)
    stages: dict[str, list[float]] = {}
    started = time.perf_counter()

    def progress(stage: str, _done: int, _total: int) -> None:
        stages.setdefault(stage, []).append(time.perf_counter() - started)

    plan = plan_formats(net, inputs, progress=progress)
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "recorded_by_s": round(stages["record"][-1], 2),
        "calls_timed": len(stages.get("measure", ())),
        "estimated": plan.estimated,
        "predicted": {name: round(getattr(plan.predicted, name), 2) for name in plan.predicted.__slots__},
    }


def alone(model: str, batch: int, cache: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--model", model, "--batch", str(batch), "--once"]
    made = subprocess.run(command, env={**os.environ, "NHWC_CACHE": cache}, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write the result as JSON")
    parser.add_argument("--model", default="resnet50", help="of torchvision")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--again", type=int, default=3, help="plans from the cache")
    parser.add_argument("--once", action="store_true", help="plan once, in this process, with the cache as it is")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.model, options.batch)))
        return
    with tempfile.TemporaryDirectory() as cache:
        first = alone(options.model, options.batch, cache)
        again = [alone(options.model, options.batch, cache) for _ in range(options.again)]
    publish(
        {
            "claim": f"a plan takes under {_FIRST_S:g} s the first time, and under {_AGAIN_S:g} s from the cache",
            "holds": {
                "first": first["seconds"] < _FIRST_S,
                "from the cache": all(each["seconds"] < _AGAIN_S for each in again),
            },
            "model": options.model,
            "batch": options.batch,
            "first": first,
            "from_the_cache": again,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
