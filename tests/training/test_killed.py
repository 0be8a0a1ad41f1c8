"""kill -9 at random moments: a run always goes on, and no checkpoint is ever half written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from training import killed
from training.runs import environment, settings, train

pytestmark = pytest.mark.usefixtures("few_threads")


def losses(path: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    return [(each["update"], each["loss"]) for each in lines if each["kind"] == "step"]


@pytest.mark.slow
def test_a_run_killed_fifty_times_at_random_moments_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    kills = 50
    ended = subprocess.run(
        [sys.executable, killed.__file__, str(tmp_path / "runs"), str(kills), "0"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    counts = json.loads(ended.stdout)
    assert sum(counts) == kills
    whole = train(settings(ema=0.9, epochs=killed.STEPS // 4))
    wanted = [(each.update, each.loss) for each in whole.steps]
    for number in range(len(counts)):
        assert losses(tmp_path / "runs" / f"run{number}") == wanted
