"""The kernel tests, scripts and programs in processes of their own, where a fault ends nothing but that process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nhwc.kernels.native import build

TESTS = Path(__file__).parent
ROOT = TESTS.parent.parent
#: Left out: torch's samples take minutes, Triton's interpreter runs none of our loops, compiled code a compiler.
_FILES = ("test_opinfo.py", "test_triton.py")
LEFT_OUT = (*(f"--ignore={TESTS / each}" for each in _FILES), "-k", "not compiled_code")
#: More than this many comparisons belong to the program without torch.
COMPARISONS = 10_000

Ran = subprocess.CompletedProcess[str]


def script(code: str, environment: dict[str, str] | None = None) -> Ran:
    return _run([sys.executable, "-c", code], environment)


def kernel_tests(*arguments: str, environment: dict[str, str] | None = None) -> Ran:
    """The default tests of this folder, with the output of the run; what a fault writes last is part of it.

    They are those in float32 and bfloat16: the loops are one source for all types.
    """
    options = ("-q", "-x", "-p", "no:cacheprovider", "--capture=sys")
    return _run([sys.executable, "-m", "pytest", *options, str(TESTS), *LEFT_OUT, *arguments], environment)


def exported() -> set[str]:
    """The names of the functions that the sources export."""
    texts = (path.read_text(encoding="utf-8") for path in build.SOURCES.glob("*.cpp"))
    return {name for text in texts for name in re.findall(r"^NHWC_EXPORT\((\w+)\)", text, re.MULTILINE)}


def standalone(compiler: str, folder: Path, flags: Sequence[str] = ()) -> Path:
    """The program that calls a library without torch, compiled into ``folder``."""
    program = folder / "driver"
    options = ("-std=gnu++17", "-O1", "-Wall", "-Werror", f"-I{build.SOURCES}", *flags, "-o", str(program))
    sources = map(str, sorted((TESTS / "standalone").glob("*.cpp")))
    subprocess.run([compiler, *options, *sources, "-ldl", "-pthread"], check=True)
    return program


def judged(*command: str) -> str:
    """What the program said; fails unless all its comparisons held."""
    ran = _run(command, None)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    found = re.search(r"^(\d+) passed, 0 failed$", ran.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > COMPARISONS
    return ran.stdout


def _run(command: Sequence[str], environment: dict[str, str] | None) -> Ran:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")))
    everything = {**os.environ, "PYTHONPATH": paths, **(environment or {})}
    return subprocess.run(command, env=everything, cwd=ROOT, capture_output=True, text=True, check=False)
