"""The kernel tests on a library that ends the process at its first overrun or undefined operation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kernels import children

from nhwc.kernels.native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FAULTS = {
    "heap-buffer-overflow": "call(4, x, 8, wide, 8, 4, 8)",
    "runtime error": "call(4, x, 2**62, wide, 8, 3, 8)",
}
FAULT = """
import torch
from nhwc.kernels import native
x, wide = torch.ones(3, 8), torch.ones(4, 8)
call = native.Function("copy_rows", "iplplll")
call(4, x, 8, wide, 8, 3, 8)
print("unharmed", flush=True)
{}
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a child loads a library that the sanitizers watch: of the set that needs no choice."""
    folder = tmp_path_factory.mktemp("watched")
    first = next(iter(build.instruction_sets()))
    build.build(folder, folder / "objects", build.SANITIZERS, only=[first])
    return {
        "NHWC_NATIVE": str(folder),
        "NHWC_INSTRUCTION_SET": first,
        # the process is Python's own, so that the runtime has to be there before everything else
        "LD_PRELOAD": str(runtime()),
        # Python and torch keep what they have until the end
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def runtime() -> Path:
    program = build.compiler()
    assert program is not None, "there is no C++ compiler"
    asked = subprocess.run([*program, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(asked.stdout.strip())
    assert path.is_absolute(), f"{program[0]} has no address sanitizer: install its libasan"
    return path.resolve()


@pytest.mark.parametrize("said", FAULTS)
def test_the_sanitizers_end_a_process_at_a_fault(watched: dict[str, str], said: str) -> None:
    ran = children.script(FAULT.format(FAULTS[said]), watched)
    assert ran.stdout == "unharmed\n", ran.stderr
    assert ran.returncode != 0
    assert said in ran.stderr


def test_the_kernel_tests_pass_under_them(watched: dict[str, str]) -> None:
    ran = children.kernel_tests(environment=watched)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-8000:]
