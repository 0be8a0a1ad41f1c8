"""Two ranks learn what one does from the same batches, and go on where they were stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from training import ranked
from training.runs import environment, train

pytestmark = pytest.mark.usefixtures("few_threads")

TIMES = {"time_s", "average_time_s", "images_per_s", "average_images_per_s"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("ranks") / "told.json"
    ended = subprocess.run(
        [sys.executable, *"-m torch.distributed.run --standalone --nproc-per-node 2".split(), ranked.__file__, file],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Grad strides do not match" not in ended.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", ranked.RUNS)
def test_two_ranks_learn_what_one_does_at_the_same_global_batch(name: str, two: dict[str, Any]) -> None:
    one = ranked.told(train(ranked.asked(name, 1), ranked.model_of(name)))
    rel = 0.03 if ranked.RUNS[name].get("amp") else 1e-3
    for kind in ("steps", "evaluations"):
        assert len(two[name][kind]) == len(one[kind])
        for ours, theirs in zip(two[name][kind], one[kind], strict=True):
            for key in set(theirs) - TIMES:
                assert ours[key] == pytest.approx(theirs[key], rel=rel, abs=1e-4), (key, ours, theirs)


@pytest.mark.parametrize("name", ["replicated", "sharded"])
def test_ranks_go_on_bit_for_bit(name: str, two: dict[str, Any]) -> None:
    def results(kind: str, part: str) -> list[dict[str, Any]]:
        return [{key: value for key, value in each.items() if key not in TIMES} for each in two[f"{name} {kind}"][part]]

    for part in ("steps", "evaluations"):
        assert results("resumed", part) == results("whole", part)
