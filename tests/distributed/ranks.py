"""Processes that torch.distributed joins: every rank runs the same checks, and tells how each one ended.

Starting the ranks costs seconds, so that many checks share one start. A check is a function of a file in ``checks``,
its name begins with ``check_``, and it is called with the rank's ``World``.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKS = Path(__file__).parent / "checks"

PROGRAM = """
import importlib, json, sys, traceback, warnings
import torch

torch.set_num_threads(1)
torch.set_warn_always(True)
from nhwc.distributed import joined

folder, *checks = sys.argv[1:]
with joined("cpu", timeout_s=60) as here:
    ended = {}
    try:
        for check in checks:
            file, name = check.split("::")
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                getattr(importlib.import_module(f"distributed.checks.{file}"), name)(here)
            ended[check] = ""
    except BaseException:
        # The other ranks wait for this one by now: the checks behind it cannot be made any more.
        ended[check] = traceback.format_exc()
    finally:
        with open(f"{folder}/{here.rank}.json", "w") as file:
            json.dump(ended, file)
"""


def checks_in(*files: str) -> list[str]:
    """The checks of files, "states::check_whole", without importing them."""
    found = []
    for file in files:
        tree = ast.parse((CHECKS / f"{file}.py").read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        found += [f"{file}::{name}" for name in names if name.startswith("check_")]
    return found


def environment() -> dict[str, str]:
    """That of one process of a test: the package and the tests from here, one thread."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("src", "tests"))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def run(
    checks: Sequence[str], folder: Path, size: int, timeout_s: float = 200.0, **variables: str
) -> dict[str, list[str]]:
    """Run checks on ``size`` ranks; for each by rank "", or how it failed. FOLDER is theirs to write to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), *checks],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **environment(),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "FOLDER": str(folder),
                **variables,
            },
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    ended = []
    for rank, output in enumerate(outputs):
        written = folder / f"{rank}.json"
        assert written.is_file(), f"rank {rank} of {size} ended early:\n{output}"
        ended.append(json.loads(written.read_text(encoding="utf-8")))
    return {check: [each.get(check, "an earlier check failed") for each in ended] for check in checks}
