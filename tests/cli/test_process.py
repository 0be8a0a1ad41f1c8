"""The command as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def nhwc(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nhwc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


WITHOUT_TORCH = """
import sys
from nhwc.cli.main import main
try:
    main()
except SystemExit as left:
    print(left.code, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["audit", "--help"], 0),
        (["audit", "resnet50", "--fail-on", "NH999"], 2),
        (["audit", "resnet50", "--fail-on", "much"], 2),
        (["audit", "resnet50", "--input", "3by4"], 2),
        (["audit", "resnet50", "--amp", "fp8"], 2),
        (["audit", "resnet50", "--format", "xml"], 2),
        (["audit", "resnet50", "--images", "nowhere"], 2),
        (["audit", "resnet50", "-o", f"{__file__}/report.html"], 2),
        (["audit", "nowhere.py:net"], 2),
        (["audit", "nowhere:net"], 2),
    ],
)
def test_what_needs_no_torch_is_told_without_waiting_for_it(arguments: list[str], code: int) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == f"{code} False"


def test_bad_input_is_one_line_on_stderr() -> None:
    done = nhwc("audit", "nowhere.py:net")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "nhwc: no file nowhere.py\n")


def test_a_reader_that_leaves_is_no_complaint(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = (
        "import sys, typer\nfrom nhwc.cli.exits import one_sentence\n"
        "app = typer.Typer()\n"
        "@app.command()\ndef f():\n    with one_sentence(False):\n        print('x')\napp()"
    )
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=buffered,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_stdout_that_was_closed_before_is_no_fault() -> None:
    command = f"{sys.executable} -m nhwc audit --help >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert "fault in nhwc" not in done.stderr
