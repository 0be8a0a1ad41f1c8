"""The compiled functions without torch, against plain loops: here, and on Arm where a cross-compiler and QEMU are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nhwc.kernels.native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SOURCES = Path(__file__).parent / "standalone"
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
#: Where Debian's cross-compiler keeps the libraries of the other machine.
SYSROOT = "/usr/aarch64-linux-gnu"


def driver(compiler: str, folder: Path) -> Path:
    program = folder / "driver"
    flags = ("-std=gnu++17", "-O1", "-Wall", "-Werror", f"-I{build.SOURCES}", "-o", str(program))
    sources = map(str, sorted(SOURCES.glob("*.cpp")))
    subprocess.run([compiler, *flags, *sources, "-ldl", "-pthread"], check=True)
    return program


def judge(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    found = re.search(r"^(\d+) passed, 0 failed$", ran.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > 3000
    return ran.stdout


def test_here(tmp_path: Path) -> None:
    compiler = build.compiler()
    assert compiler is not None
    program = driver(compiler[0], tmp_path)
    libraries = build.build(tmp_path, tmp_path / "objects")
    best = re.match(r"best instruction set: (\w+)", judge(str(program), str(libraries[0])))
    assert best is not None
    names = [path.name for path in libraries]
    for library in libraries[1 : names.index(build.library_name(best[1])) + 1]:
        judge(str(program), str(library))


@pytest.mark.skipif(not shutil.which(CROSS), reason=f"there is no {CROSS}")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"there is no {EMULATOR}")
def test_on_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", CROSS)
    (library,) = build.build(tmp_path, tmp_path / "objects")
    assert library.name == build.library_name("neon")
    answer = judge(EMULATOR, "-L", SYSROOT, str(driver(CROSS, tmp_path)), str(library))
    assert answer.startswith("best instruction set: neon\n")
