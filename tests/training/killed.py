"""A program that is killed again and again while it trains, for the test beside it: FOLDER, how many kills, a seed.

It imports everything once and trains in forked children, so that a start costs no seconds. After each kill it reads
every checkpoint there is to the last byte. Prints how many kills there were before each whole run, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import zipfile
from pathlib import Path

from training.runs import settings, tiny

import nhwc
import nhwc.kernels.native.library  # what is loaded now need not be loaded in each child
from nhwc.training.run import run

STEPS = 60


def train(folder: Path) -> None:
    asked = settings(folder=folder, resume=True, save_every=1, ema=0.9, epochs=STEPS // 4)
    run(tiny, asked)


def child(folder: Path) -> int:
    number = os.fork()
    if number == 0:
        code = 1
        try:
            train(folder)
            code = 0
        finally:
            os._exit(code)
    return number


def require_whole(folder: Path) -> None:
    for path in folder.glob("*.pt"):
        with zipfile.ZipFile(path) as held:
            bad = held.testzip()
        assert bad is None, f"{path} is damaged at {bad}"


def killed_run(folder: Path, kills: int, chance: random.Random) -> int:
    """Train to the end under up to ``kills`` kills; returns how many there were."""
    done = 0
    while True:
        number = child(folder)
        if done < kills:
            time.sleep(chance.uniform(0.1, 1.5))
            os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "a resumed run failed"
            return done
        assert os.WTERMSIG(status) == signal.SIGKILL
        done += 1
        require_whole(folder)


def main(root: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    counts: list[int] = []
    while sum(counts) < kills:
        folder = root / f"run{len(counts)}"
        counts.append(killed_run(folder, kills - sum(counts), chance))
        if counts[-1] == 0 and len(counts) > 20:
            raise SystemExit("runs end before they can be killed")
    print(json.dumps(counts))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    assert nhwc
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
