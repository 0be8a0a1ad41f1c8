"""The command as a process of its own, on the real audit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL = """
import sys
import time
import torch
from torch import nn


class Slow(nn.Module):
    def forward(self, x):
        open("started", "w").close()
        time.sleep(60)
        return x


def flattens():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4)), torch.randn(2, 3, 8, 8)


def slow():
    return Slow(), torch.randn(2, 3, 8, 8)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


def nhwc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nhwc", "audit", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def test_a_report_in_a_pipe_is_json_and_nothing_else(folder: Path) -> None:
    done = nhwc(folder, "net.py:flattens", "--format", "json", "--threads", "1", "--fail-on", "NH201")
    document = json.loads(done.stdout)
    assert document["format"] == "nhwc-report"
    assert {finding["operator"] for finding in document["findings"]} >= {"flatten"}
    codes = {finding["code"] for finding in document["findings"]}
    assert done.returncode == int("NH201" in codes)
    assert all(line.startswith("nhwc: --fail-on NH201") for line in done.stderr.splitlines())


def test_a_static_audit_finds_the_same_culprit_without_times(folder: Path) -> None:
    done = nhwc(folder, "net.py:flattens", "--static", "--format", "json", "--fail-on", "any")
    document = json.loads(done.stdout)
    assert (document["trace"]["mode"], done.returncode) == ("static", 1)
    assert [(finding["operator"], finding["ms"]) for finding in document["findings"]] == [("flatten", None)]
    assert done.stderr == "nhwc: --fail-on any: 1 finding\n"


def test_a_wrong_shape_is_one_sentence_with_the_models_own_words(folder: Path) -> None:
    done = nhwc(folder, "net.py:flattens", "--input", "2x5x8x8")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nhwc: the model raised RuntimeError: ")
    assert "5 channels" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_inside_the_model_is_one_line(folder: Path) -> None:
    command = [sys.executable, "-m", "nhwc", "audit", "net.py:slow"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not (folder / "started").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "nhwc: interrupted\n")
