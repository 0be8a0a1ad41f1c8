"""The compiled functions without torch, against plain loops: here, and on Arm where a cross-compiler and QEMU are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kernels import children

from nhwc.kernels.native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
#: Where Debian's cross-compiler keeps the libraries of the other machine.
SYSROOT = "/usr/aarch64-linux-gnu"


def test_here(tmp_path: Path) -> None:
    compiler = build.compiler()
    assert compiler is not None
    program = children.standalone(compiler[0], tmp_path)
    libraries = [build.SOURCES.parent / build.library_name(each) for each in build.instruction_sets()]
    best = re.match(r"best instruction set: (\w+)", children.judged(str(program), str(libraries[0])))
    assert best is not None
    names = [path.name for path in libraries]
    for library in libraries[1 : names.index(build.library_name(best[1])) + 1]:
        children.judged(str(program), str(library))


@pytest.mark.skipif(not shutil.which(CROSS), reason=f"there is no {CROSS}")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"there is no {EMULATOR}")
def test_on_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", CROSS)
    (library,) = build.build(tmp_path, tmp_path / "objects")
    assert library.name == build.library_name("neon")
    answer = children.judged(EMULATOR, "-L", SYSROOT, str(children.standalone(CROSS, tmp_path)), str(library))
    assert answer.startswith("best instruction set: neon\n")
