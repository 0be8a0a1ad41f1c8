"""The command as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


def nhwc(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nhwc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


VERSION_WITHOUT_TORCH = """
import sys
from nhwc.cli.main import main
sys.argv = ["nhwc", "--version"]
try:
    main()
except SystemExit:
    print("torch" in sys.modules)
"""


def test_help_and_version_are_quick_because_torch_stays_out() -> None:
    done = subprocess.run(
        [sys.executable, "-c", VERSION_WITHOUT_TORCH], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"


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
