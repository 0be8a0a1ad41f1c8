"""Whether the bench agrees with itself: ten models measured twice, each time in a process of its own.

The interval of channels last over contiguous from the first run shall hold the ratio of the second for nine models of
ten; contiguous set against itself shall come out as "cannot tell", or within 2 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from paired import arguments, publish

import nhwc

MODELS = (
    "alexnet",
    "densenet121",
    "googlenet",
    "mnasnet1_0",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "vgg11",
)
VARIANTS = "contiguous,channels_last,contiguous"
TWIN = "contiguous (2)"
TWIN_LIMIT = 0.02


def measure(model: str, batch: int, seed: int, folder: Path) -> nhwc.BenchReport:
    path = folder / f"{model}.{seed}.json"
    command = f"bench {model} --batch {batch} --variants {VARIANTS} --seed {seed} -o {path}"
    subprocess.run([sys.executable, "-m", "nhwc", *command.split()], check=True, stdout=subprocess.DEVNULL)
    return nhwc.load_bench(path)


def compared(model: str, batch: int, folder: Path) -> dict[str, object]:
    runs = [measure(model, batch, seed, folder) for seed in (0, 1)]
    ratios = [run.variant("channels_last").ratio for run in runs]
    twins = [run.variant(TWIN) for run in runs]
    assert all(ratios)
    first, second = ratios
    row = {
        "model": model,
        "ratios": [(ratio.estimate, ratio.low, ratio.high, ratio.pairs) for ratio in ratios],
        "agrees": first.low <= second.estimate <= first.high,
        "twins": [(twin.ratio.estimate, twin.ratio.low, twin.ratio.high, twin.verdict) for twin in twins],
        "twins_agree": all(
            twin.verdict == "cannot tell" or abs(twin.ratio.estimate - 1.0) <= TWIN_LIMIT for twin in twins
        ),
        "unstable": [run.unstable for run in runs],
    }
    print(json.dumps(row), file=sys.stderr)
    return row


def main() -> None:
    options = arguments(__doc__, rounds=1)
    with TemporaryDirectory() as folder:
        rows = [compared(model, 4, Path(folder)) for model in MODELS]
    agreeing = sum(bool(row["agrees"]) for row in rows)
    publish(
        {
            "claim": "the first run's interval holds the second run's ratio for 9 of 10 models; identical variants: "
            "cannot tell, or within 2 %",
            "agreeing": agreeing,
            "holds": agreeing >= 9 and all(row["twins_agree"] for row in rows),
            "results": rows,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
