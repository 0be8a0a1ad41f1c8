"""The kernel tests and small scripts in processes of their own, where a fault ends nothing but that process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from nhwc.kernels.native import build

TESTS = Path(__file__).parent
#: Left out: torch's samples take minutes, and compiled code runs a compiler, under the same preloaded libraries.
LEFT_OUT = ("--ignore", str(TESTS / "test_opinfo.py"), "-k", "not compiled_code")


def script(code: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return _run((sys.executable, "-c", code), environment)


def kernel_tests(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The default tests of this folder, with the output of the run."""
    command = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS), *LEFT_OUT, *arguments)
    return _run(command, environment)


def exported() -> set[str]:
    """The names of the functions that the sources export."""
    texts = (path.read_text(encoding="utf-8") for path in build.SOURCES.glob("*.cpp"))
    return {name for text in texts for name in re.findall(r"^NHWC_EXPORT\((\w+)\)", text, re.MULTILINE)}


def _run(command: tuple[str, ...], environment: dict[str, str] | None) -> subprocess.CompletedProcess[str]:
    root = TESTS.parent.parent
    paths = os.pathsep.join((str(root / "src"), str(root / "tests"), os.environ.get("PYTHONPATH", "")))
    everything = {**os.environ, "PYTHONPATH": paths, **(environment or {})}
    return subprocess.run(command, env=everything, cwd=root, capture_output=True, text=True, check=False)
