"""What PyTorch's tutorial claims for channels last on a GPU, checked on one CUDA GPU in eight minutes.

python benchmarks/gpu_check.py -o benchmarks/results/gpu_check.json
python benchmarks/gpu_check.py --device cpu --smoke    # a tiny version of everything, to try the script
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_kernels  # noqa: F401 it adds a section
import torch
from gpu_claims import Line, render
from gpu_sections import SECTIONS, Plan

from nhwc.errors import NhwcError, TargetError
from nhwc.machine import conditions
from nhwc.schema.typed import plain
from nhwc.suites.files import write_whole

FORMAT, VERSION = "nhwc-gpu-check", 1
#: Importing torch, starting CUDA and writing the result come on top of the sections.
START_S, WHOLE_S = 30.0, 480.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0 whatever was found, or 2 with one sentence."""
    try:
        asked = parse(arguments)
        check(asked, device_of(asked.device, asked.smoke))
    except NhwcError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpu_check: interrupted", file=sys.stderr)
        return 130
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1; cpu with --smoke only")
    parser.add_argument("--smoke", action="store_true", help="small inputs, few models: proves the script, no claim")
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS), metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, help="write the lines and their raw samples as JSON, as they come")
    return parser.parse_args(arguments)


def device_of(name: str, smoke: bool) -> torch.device:
    """The device to check. Raises TargetError, in one sentence, where it is none that the check can use."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TargetError(f"--device {name} is no device; write cuda or cuda:1") from error
    if device.type == "cpu" and smoke:
        return device
    if device.type != "cuda":
        raise TargetError(f"--device {name}: the claims are about CUDA GPUs; to try the script: --device cpu --smoke")
    if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        raise TargetError(
            f"torch sees no GPU {name} here: run this on a machine with one, or try the script: --device cpu --smoke"
        )
    return device


def check(asked: argparse.Namespace, device: torch.device) -> None:
    """Run the sections one after the other; every line is printed and written as it comes."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "command": "python " + " ".join(sys.argv),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "smoke": asked.smoke,
        "conditions": plain(conditions(device)),
        "lines": [],
    }
    lines: list[Line] = []
    torch.manual_seed(0)
    start = time.monotonic()
    for place, name in enumerate(asked.sections):
        run, budget_s = SECTIONS[name]
        print(f"[{time.monotonic() - start:4.0f} s] {name}, {place + 1} of {len(asked.sections)}", flush=True)
        end = min(time.monotonic() + budget_s, start + WHOLE_S - START_S)
        for line in run(Plan(device, asked.smoke), end):
            lines.append(line)
            print(f"[{time.monotonic() - start:4.0f} s]   {line.answer}: {line.name}: {line.measured}", flush=True)
            document["lines"].append(plain(line))
            if asked.output is not None:
                document["seconds"] = round(time.monotonic() - start, 1)
                write_whole(asked.output, json.dumps(document, indent=1, allow_nan=False) + "\n")
    print(f"\n{render(lines)}")
    if asked.smoke:
        print("This was a smoke run: it proves that the script runs, and no claim.")


if __name__ == "__main__":
    sys.exit(main())
