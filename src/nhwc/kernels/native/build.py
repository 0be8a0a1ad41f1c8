"""Compiles the kernels: one shared library per instruction set, of the same sources, with a plain C interface.

A library of its own for each set, since inline functions of the C++ library that two objects share are merged when they
are linked: the merged copy might hold instructions that the processor lacks. Needs a C++17 compiler ($CXX, or the first
of c++, g++, clang++) with the GNU vector extensions, and no torch headers. Standard library only: the package's build
runs this file before anything is installed; ``python build.py`` compiles in place, for development.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
FLAGS = (
    "-std=gnu++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fno-tree-loop-distribute-patterns",
    "-Wall",
)
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_X86_SETS = {
    "portable": (),
    "avx2": _AVX2,
    "avx512": (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
}


def instruction_sets() -> dict[str, tuple[str, ...]]:
    """The instruction sets to compile for here, with the flags of each. On Arm the plain set has NEON."""
    return _X86_SETS if platform.machine().lower() in {"x86_64", "amd64"} else {"portable": ()}


def library_name(instruction_set: str) -> str:
    return f"libnhwc_{instruction_set}.so"


def compiler() -> str | None:
    """The C++ compiler to use, None where there is none."""
    named = os.environ.get("CXX", "").split()
    return named[0] if named else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def build(folder: Path, objects: Path, extra_flags: tuple[str, ...] = ()) -> list[Path]:
    """Compile what changed and link into ``folder``, keeping object files in ``objects``; the libraries, by path.

    Raises RuntimeError with what the compiler said, or where there is no compiler.
    """
    program = compiler()
    if program is None:
        raise RuntimeError("there is no C++ compiler; install g++ or clang, or name one in CXX")
    folder.mkdir(parents=True, exist_ok=True)
    objects.mkdir(parents=True, exist_ok=True)
    headers = max((path.stat().st_mtime for path in SOURCES.glob("*.h")), default=0.0)
    jobs = [
        (name, flags, source, objects / f"{source.stem}.{name}.o")
        for name, flags in instruction_sets().items()
        for source in sorted(SOURCES.glob("*.cpp"))
    ]

    def compile_one(job: tuple[str, tuple[str, ...], Path, Path]) -> None:
        _name, flags, source, target = job
        fresh = target.exists() and target.stat().st_mtime > max(headers, source.stat().st_mtime)
        if not fresh:
            _run(program, *FLAGS, *flags, *extra_flags, "-c", str(source), "-o", str(target))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(compile_one, jobs))
    return [
        _link(program, folder / library_name(name), [job[3] for job in jobs if job[0] == name], extra_flags)
        for name in instruction_sets()
    ]


def _link(program: str, library: Path, objects: list[Path], extra_flags: tuple[str, ...]) -> Path:
    # renamed into place: a process that has the old one loaded keeps it
    fresh = library.with_suffix(f".{os.getpid()}.tmp")
    _run(program, "-shared", "-Wl,-Bsymbolic", *extra_flags, *map(str, objects), "-o", str(fresh))
    fresh.replace(library)
    return library


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 the compiler
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


if __name__ == "__main__":
    here = Path(__file__).parent
    try:
        build(here, here / "build")
    except RuntimeError as error:
        sys.exit(str(error))
