"""Processes that torch.distributed joins: each rank runs one function of a test file, and answers with its result."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib.util, json, sys, warnings
import torch

torch.set_num_threads(1)
torch.set_warn_always(True)
spec = importlib.util.spec_from_file_location("ranks_of_test", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from nhwc.distributed import joined

with joined("cpu", timeout_s=60) as here:
    answers = {}
    for name in sys.argv[3].split(","):
        torch.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = getattr(module, name)(here)
        answers[name] = {"answer": answer, "warnings": [str(warning.message) for warning in caught]}
    with open(f"{sys.argv[2]}/{here.rank}.json", "w") as file:
        json.dump(answers, file)
"""


def run(
    file: str, names: Sequence[str], folder: Path, ranks: int = 2, timeout_s: float = 200.0, **environment: str
) -> list[dict[str, Any]]:
    """Run functions of ``file``, each called with the rank's ``World``; by rank, name → answer and warnings."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, file, str(folder), ",".join(names)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "FOLDER": str(folder),
                **environment,
            },
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(outputs)
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]
