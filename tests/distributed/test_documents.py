"""The examples of the page run, by themselves and under torchrun, and the two lines do what they are said to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed
from distributed.ranks import ROOT, environment

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
LOOP = BLOCKS[0]
CONVERT = "nhwc.convert(model, inputs=True)  # instead of model.to(memory_format=torch.channels_last)"
WRAP = "nhwc.distributed.data_parallel(model)  # instead of DistributedDataParallel(model)"


def torchrun(program: str, folder: Path) -> tuple[list[str], str]:
    """What a program prints on two ranks, and what goes to the error stream."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    return torchrun(LOOP, tmp_path_factory.mktemp("after"))


def test_two_lines_under_torchrun(after: tuple[list[str], str]) -> None:
    lines, errors = after
    assert [line.split(":")[0] for line in lines] == ["0", "1", "2"]
    assert "Warning" not in errors


@pytest.mark.slow
def test_the_loop_before_warns_and_learns_the_same(after: tuple[list[str], str], tmp_path: Path) -> None:
    """The depthwise weight stays contiguous, as when only images and some layers were converted by hand."""
    before = LOOP.replace(CONVERT, "model[0].to(memory_format=torch.channels_last)")
    before = before.replace(WRAP, "torch.nn.parallel.DistributedDataParallel(model)")
    before = before.replace("model(images)", "model(images.to(memory_format=torch.channels_last))")
    assert before.count("nhwc.") == 1  # the import of joined alone
    lines, errors = torchrun(before, tmp_path)
    assert "Grad strides do not match bucket view strides" in errors
    losses = [[float(line.split(":")[1]) for line in each] for each in (lines, after[0])]
    assert losses[0] == pytest.approx(losses[1], abs=2e-6)


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_the_other_examples_on_one_process(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    exec(compile(BLOCKS[number], "docs/distributed.md", "exec"), {"__name__": "__example__"})


@pytest.mark.slow
def test_the_sharded_example_under_torchrun(tmp_path: Path) -> None:
    (sharded,) = [block for block in BLOCKS if "fully_shard(model)" in block]
    assert "Warning" not in torchrun(sharded, tmp_path)[1]
