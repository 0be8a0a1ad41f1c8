"""Compiles the kernels: one shared library per instruction set, of the same sources, with a plain C interface.

A library of its own for each set, since inline functions of the C++ library that two objects share are merged when they
are linked: the merged copy might hold instructions that the processor lacks. Needs a C++17 compiler ($CXX, or the first
of c++, g++, clang++) with the GNU vector extensions, and no torch headers; one that compiles for another machine gets
that machine's sets. Standard library only: the package's build runs this file before anything is installed.
``python build.py`` compiles in place, for development; ``python build.py --help`` says what else it does.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
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
#: What makes a library that ends the process at its first overrun or undefined operation; float to integer is one that
#: the machines answer differently.
SANITIZERS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-O1",
    "-g",
)
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
#: By machine; the first set of each is the one that all its processors have.
_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "portable": (),
        "avx2": _AVX2,
        "avx512": (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    },
    "aarch64": {"neon": ("-march=armv8-a",)},
}
_OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def instruction_sets(machine: str | None = None) -> dict[str, tuple[str, ...]]:
    """The instruction sets to compile for, with the flags of each; the first is the one that every such processor has.

    machine: as ``platform.machine()`` or a compiler's target names it, by default the one that this runs on.

    >>> list(instruction_sets("arm64")), list(instruction_sets("riscv64"))
    (['neon'], ['portable'])
    """
    name = (machine or platform.machine()).lower()
    return _SETS.get(_OTHER_NAMES.get(name, name), {"portable": ()})


def library_name(instruction_set: str) -> str:
    return f"libnhwc_{instruction_set}.so"


def compiler() -> tuple[str, ...] | None:
    """The C++ compiler to use, with the options that $CXX gives it; None where there is none."""
    named = tuple(os.environ.get("CXX", "").split())
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return named or (None if found is None else (found,))


def build(folder: Path, objects: Path, extra_flags: Sequence[str] = (), only: Collection[str] = ()) -> list[Path]:
    """Compile what changed and link into ``folder``, keeping object files in ``objects``; the libraries, by path.

    only: these instruction sets instead of all that the compiler's machine has. Raises RuntimeError with what the
    compiler said, or where there is no compiler.
    """
    program = compiler()
    if program is None:
        raise RuntimeError("there is no C++ compiler; install g++ or clang, or name one in CXX")
    folder.mkdir(parents=True, exist_ok=True)
    objects.mkdir(parents=True, exist_ok=True)
    known = instruction_sets(_run(*program, "-dumpmachine").split("-")[0])
    if unknown := set(only) - set(known):
        raise RuntimeError(f"{program[0]} compiles for {', '.join(known)}, not for {', '.join(sorted(unknown))}")
    sets = {name: flags for name, flags in known.items() if not only or name in only}
    jobs = [
        (name, flags, source, objects / f"{'-'.join(source.relative_to(SOURCES).with_suffix('').parts)}.{name}.o")
        for name, flags in sets.items()
        for source in sorted(SOURCES.rglob("*.cpp"))
    ]

    def compile_one(job: tuple[str, tuple[str, ...], Path, Path]) -> None:
        _name, flags, source, target = job
        if not _is_fresh(target):
            _run(*program, *FLAGS, *flags, *extra_flags, "-MMD", "-c", str(source), "-o", str(target))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(compile_one, jobs))
    return [
        _link(program, folder / library_name(name), [job[3] for job in jobs if job[0] == name], extra_flags)
        for name in sets
    ]


def _is_fresh(target: Path) -> bool:
    """Whether an object is newer than its source and the headers included, which the compiler listed (-MMD)."""
    listed = target.with_suffix(".d")
    if not (target.exists() and listed.exists()):
        return False
    names = listed.read_text(encoding="utf-8").replace("\\\n", " ").split(":", 1)[1].split()
    # a path with a space comes in pieces that do not exist: compiled again, never taken for fresh
    return all(Path(name).exists() and Path(name).stat().st_mtime < target.stat().st_mtime for name in names)


def _link(program: tuple[str, ...], library: Path, objects: list[Path], extra_flags: Sequence[str]) -> Path:
    # renamed into place: a process that has the old one loaded keeps it
    fresh = library.with_suffix(f".{os.getpid()}.tmp")
    _run(*program, "-shared", "-Wl,-Bsymbolic", *extra_flags, *map(str, objects), "-o", str(fresh))
    fresh.replace(library)
    return library


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 the compiler
    except OSError as error:
        raise RuntimeError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Compile the kernels, in place or into a folder.")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=here, help="where the libraries go, default %(default)s"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="SET", help="these instruction sets instead of all")
    parser.add_argument("--sanitize", action="store_true", help="with address and undefined-behaviour sanitizers")
    chosen = parser.parse_args()
    if chosen.sanitize and chosen.folder.resolve() == here:
        parser.error("name a folder: an ordinary process cannot load what the sanitizers watch")
    # objects of other flags are no older and would be taken for fresh: they lie apart
    objects = chosen.folder / "build" / ("sanitized" if chosen.sanitize else "")
    try:
        build(chosen.folder, objects, SANITIZERS if chosen.sanitize else (), chosen.only)
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
