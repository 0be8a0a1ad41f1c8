"""Which library is built and which is loaded, by machine and by environment."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from nhwc.kernels.native import build, library

loaded = library._loaded.__wrapped__  # as in a fresh process


@pytest.mark.parametrize("instruction_set", build.instruction_sets())
def test_the_environment_picks_an_instruction_set(instruction_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NHWC_NATIVE", raising=False)  # the sanitizers' folder has one library
    monkeypatch.setenv("NHWC_INSTRUCTION_SET", instruction_set)
    assert loaded()[1] == library.Status(instruction_set, "")


def test_one_that_is_missing_leaves_the_one_that_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_INSTRUCTION_SET", "mmx")
    found, status = loaded()
    assert found is not None
    assert status.instruction_set == next(iter(build.instruction_sets()))
    assert "libnhwc_mmx.so" in status.reason


@pytest.mark.parametrize(("machine", "name"), [("aarch64", "neon"), ("arm64", "neon"), ("riscv64", "portable")])
def test_another_machine_asks_for_its_own(
    machine: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setenv("NHWC_NATIVE", str(tmp_path))
    found, status = loaded()
    assert found is None
    assert status.instruction_set == ""
    assert f"there is no libnhwc_{name}.so in {tmp_path}, which NHWC_NATIVE names" in status.reason


def test_what_the_compiler_cannot_make_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"compiles for .*, not for mmx"):
        build.build(tmp_path, tmp_path, only=["mmx"])
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match="absent cannot be run"):
        build.build(tmp_path, tmp_path)


def test_what_includes_a_changed_header_is_compiled_again_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "src"
    sources.mkdir()
    (sources / "shared.h").write_text("inline int shared() { return 1; }\n")
    (sources / "with.cpp").write_text('#include "shared.h"\nint with() { return shared(); }\n')
    (sources / "without.cpp").write_text("int without() { return 2; }\n")
    monkeypatch.setattr(build, "SOURCES", sources)
    first = next(iter(build.instruction_sets()))

    def made() -> dict[str, int]:
        build.build(tmp_path / "out", tmp_path / "objects", only=[first])
        return {path.name.split(".")[0]: path.stat().st_mtime_ns for path in (tmp_path / "objects").glob("*.o")}

    before = made()
    assert made() == before
    (sources / "shared.h").touch()
    after = made()
    assert after["with"] > before["with"]
    assert after["without"] == before["without"]
