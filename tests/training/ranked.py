"""Runs on several ranks, for the test beside it: starting ranks costs seconds, so that one start does them all.

torchrun calls it with a file, which gets what rank 0 was told in each run, as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training.runs import Kept, certain, resumed, settings, train

from nhwc import distributed

#: What is asked of all ranks together; each takes its part of the batch.
RUNS: dict[str, dict[str, Any]] = {
    "replicated": {},
    "accumulated": {"accumulate": 2, "ema": 0.9, "epochs": 2},
    "synchronised": {"sync_batch_norm": True, "amp": "bf16"},
    "sharded": {"fsdp": True, "ema": 0.9, "optimizer": "adamw", "lr": 0.01},
    "uneven": {"samples": 50, "fsdp": True},  # five pictures to evaluate on
}


def model_of(name: str) -> Any:
    """Batch norm sees a rank's own part of a batch, unless it is synchronised."""

    def without_norm(classes: int) -> nn.Module:
        made = certain(classes)
        made[1] = nn.Identity()
        return made

    return certain if name == "synchronised" else without_norm


def asked(name: str, size: int, **changes: Any) -> Any:
    """The settings of that run for each of ``size`` ranks."""
    given = {**RUNS[name], **changes}
    return settings(**{"batch": 8 // size, **given})


def told(kept: Kept) -> dict[str, Any]:
    return {"steps": [asdict(each) for each in kept.steps], "evaluations": [asdict(each) for each in kept.evaluations]}


def main(file: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with distributed.joined("cpu") as here:
        for name in RUNS:
            found[name] = told(train(asked(name, here.size), model_of(name)))
        for name in ("replicated", "sharded"):
            ask = partial(asked, name, here.size)
            found[f"{name} whole"] = told(train(ask()))
            found[f"{name} resumed"] = told(resumed(file.parent / name, 5, ask))
    if here.rank == 0:
        file.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
