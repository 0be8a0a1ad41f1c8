"""The kernel tests, the engine's steps and the program without torch, on a library that ends the process at its first
overrun or undefined operation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from inference.steps.test_hammering import exported as steps
from inference.steps.test_hammering import hammered
from kernels import children

from nhwc.kernels.native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FAULTS = {
    "heap-buffer-overflow": "call(4, x, 8, wide, 8, 4, 8)",
    "signed integer overflow": "call(4, x, 2**62, wide, 8, 3, 8)",
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
#: The set that needs no choice.
FIRST = next(iter(build.instruction_sets()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library lies that the sanitizers watch."""
    made = tmp_path_factory.mktemp("watched")
    build.build(made, made / "objects", build.SANITIZERS, only=[FIRST])
    return made


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """In which a child of this Python loads that library."""
    # The executable is Python's own, so that the sanitizer has to be there before everything else; it takes its place
    # before what throws exceptions only where that is there as well.
    preloaded = " ".join(str(runtime(name)) for name in ("libasan.so", "libstdc++.so"))
    return {
        "NHWC_NATIVE": str(folder),
        "NHWC_INSTRUCTION_SET": FIRST,
        "LD_PRELOAD": preloaded,
        # Python and torch keep what they have until the end
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def runtime(name: str) -> Path:
    program = build.compiler()
    assert program is not None, "there is no C++ compiler"
    asked = subprocess.run([*program, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(asked.stdout.strip())
    assert path.is_absolute(), f"{program[0]} has no {name}: install it"
    return path.resolve()


@pytest.mark.parametrize("said", FAULTS)
def test_the_sanitizers_end_a_process_at_a_fault(environment: dict[str, str], said: str) -> None:
    ran = children.script(FAULT.format(FAULTS[said]), environment)
    assert ran.stdout == "unharmed\n", ran.stderr
    assert ran.returncode != 0
    assert said in ran.stderr


def test_the_kernel_tests_pass_under_them(environment: dict[str, str]) -> None:
    ran = children.kernel_tests(environment=environment)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-8000:]


def test_the_steps_of_the_engine_pass_under_them(environment: dict[str, str]) -> None:
    assert hammered(150, environment=environment) == steps()


def test_the_program_without_torch_passes_under_them(folder: Path) -> None:
    compiler = build.compiler()
    assert compiler is not None
    program = children.standalone(compiler[0], folder, build.SANITIZERS)
    children.judged(str(program), str(folder / build.library_name(FIRST)))
