"""What nhwc.optimize makes of whole models: the tutorial's 34 and ten more, in inference and training.

    python benchmarks/optimize.py -o benchmarks/results/optimize.json [--models resnet18,unet3d] [--modes inference]
        [--batch 8] [--budget 60]

Every model in every mode is optimized in a process of its own. The result is written after each: stopped, the same
command goes on where it was. Models that ask for much memory or time have a batch of 2.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from paired import machine
from torch import nn
from unet3d import ResidualUNet3d

from nhwc.suites.tutorial import TUTORIAL
from nhwc.whole_files import replacing

MORE = (
    "deeplabv3_resnet50",
    "lraspp_mobilenet_v3_large",
    "r3d_18",
    "r2plus1d_18",
    "unet3d",
    "efficientnet_b0",
    "regnet_y_400mf",
    "convnext_tiny",
    "maxvit_t",
    "raft_small",
)
MODELS = (*(each.name for each in TUTORIAL.models), *MORE)
MODES = ("inference", "training")
_SMALL = {"deeplabv3_resnet50", "r3d_18", "r2plus1d_18", "unet3d", "maxvit_t", "raft_small"}
_SMALL_BATCH = 2
#: What two identical variants of bench_agreement.py differ by, and what is claimed.
_IDENTICAL, _GAIN, _NEAR, _SHARE = 0.02, 1.05, 0.3, 0.8

Row = dict[str, Any]


def unet3d() -> nn.Module:
    """The 3-D U-Net as a target of the command."""
    return ResidualUNet3d(width=16)


def command(model: str, mode: str, batch: int, budget_s: float) -> list[str]:
    """What optimizes one model in one mode and tells it as JSON."""
    target = [f"{__file__}:unet3d", "--input", f"{batch}x1x32x64x64"] if model == "unet3d" else [model]
    size = [] if model == "unet3d" else ["--batch", str(batch)]
    train = ["--train"] if mode == "training" else []
    start = [sys.executable, "-m", "nhwc", "optimize", *target, *size, *train]
    return [*start, "--budget", f"{budget_s:g}", "--format", "json"]


def optimized(model: str, mode: str, batch: int, budget_s: float) -> Row:
    """One model in one mode; "failure" has the last line of what was said where it did not run."""
    row: Row = {"model": model, "mode": mode, "batch": batch, "budget_s": budget_s}
    ran = subprocess.run(command(model, mode, batch, budget_s), capture_output=True, text=True, check=False)
    if ran.returncode:
        return {**row, "failure": (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]}
    return {**row, **told(json.loads(ran.stdout))}


def told(report: dict[str, Any]) -> Row:
    """The row of a report of nhwc.optimize.

    ratio: [estimate, low, high] of what came back over the better plain format, 1 where it is that one.
    predicted, measured: the gain of the plan; of a plan in one format contiguous over channels last.
    """
    found = {each["name"]: each for each in report["candidates"]}
    plain, last = found[report["plain"]], found["channels_last"]
    back = found[report["chosen"] or "contiguous"]
    row = {
        "contiguous_ms": found["contiguous"]["median_ms"],
        "channels_last_ms": last["median_ms"],
        "chosen": report["chosen"] or "unchanged",
        "chosen_ms": back["median_ms"],
        "ratio": [1.0, 1.0, 1.0]
        if back is plain
        else [bounded(back["ratio"][end]) for end in ("estimate", "low", "high")],
        "candidates": {name: each["ratio"] and each["ratio"]["estimate"] for name, each in found.items()},
        "reason": report["reason"],
        "unstable": bool(report["benchmark"].get("unstable")),
        "seconds": round(report["seconds"], 1),
    }
    planned, plan = found.get("planned"), report.get("plan")
    if planned is not None and planned["ratio"] is not None:
        row |= {"predicted": planned["predicted"], "measured": planned["ratio"]["estimate"]}
    elif plan is not None and last["median_ms"] and isinstance(plan["predicted"]["channels_last"], (int, float)):
        times = plan["predicted"]
        row |= {
            "predicted": times["contiguous"] / times["channels_last"],
            "measured": found["contiguous"]["median_ms"] / last["median_ms"],
        }
    return row


def bounded(value: Any) -> float | None:
    """A number of a report; None for an end of an interval that too few rounds leave open."""
    return value if isinstance(value, (int, float)) else None


def claims(rows: list[Row]) -> dict[str, Any]:
    """What must hold over all rows that ran, and whether it does."""
    ran = [row for row in rows if "failure" not in row]
    slower = [f"{row['model']} {row['mode']}" for row in ran if (row["ratio"][2] or math.inf) < 1.0 - _IDENTICAL]
    mean = math.exp(sum(math.log(row["ratio"][0]) for row in ran) / len(ran)) if ran else 1.0
    promised = [row for row in ran if "predicted" in row]
    near = sum(abs(row["predicted"] / row["measured"] - 1.0) <= _NEAR for row in promised)
    return {
        "never slower than the better plain format": {"slower": slower, "holds": bool(ran) and not slower},
        f"geometric mean at least {_GAIN}": {"mean": round(mean, 3), "holds": mean >= _GAIN},
        f"predicted within {_NEAR:.0%} of measured for {_SHARE:.0%}": {
            "near": near,
            "of": len(promised),
            "holds": bool(promised) and near >= _SHARE * len(promised),
        },
        "models and modes": {"ran": len(ran), "failed": len(rows) - len(ran), "of": len(MODELS) * len(MODES)},
    }


def read(path: Path) -> list[Row]:
    """The rows of an earlier run on this machine; SystemExit for one of another."""
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    if document["machine"] != json.loads(json.dumps(machine())):
        raise SystemExit(f"{path} was measured on another machine or torch; give another file with -o")
    rows: list[Row] = document["results"]
    return rows


def write(path: Path, rows: list[Row]) -> None:
    """The whole result, at once."""
    document = {
        "command": "python " + " ".join(sys.argv),
        "machine": machine(),
        "claims": claims(rows),
        "results": rows,
    }
    with replacing(path, path.with_suffix(".tmp")) as file:
        file.write((json.dumps(document, indent=2) + "\n").encode())


def words(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names joined by commas, all where nothing was said; SystemExit for one that is not known."""
    named = known if text is None else tuple(each.strip() for each in text.split(","))
    for each in named:
        if each not in known:
            raise SystemExit(f"{option}: there is no {each!r}; the known ones are {', '.join(known)}")
    return named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="the result, which an interrupted run goes on with"
    )
    parser.add_argument("--models", help="joined by commas; without it all")
    parser.add_argument("--modes", help="inference,training")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of rounds and of timing operators")
    options = parser.parse_args()
    models, modes = words("--models", options.models, MODELS), words("--modes", options.modes, MODES)
    rows = read(options.output)
    done = {(row["model"], row["mode"]) for row in rows if "failure" not in row}
    for model in models:
        for mode in modes:
            if (model, mode) in done:
                continue
            batch = min(options.batch, _SMALL_BATCH) if model in _SMALL else options.batch
            row = optimized(model, mode, batch, options.budget)
            rows = [each for each in rows if (each["model"], each["mode"]) != (model, mode)] + [row]
            write(options.output, rows)
            print(f"{model} {mode}: {row.get('failure') or (row['chosen'], row['ratio'], row['seconds'])}", flush=True)
    print(json.dumps(claims(rows), indent=2))


if __name__ == "__main__":
    main()
