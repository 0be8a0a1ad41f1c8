"""Which library is built and which is loaded, by machine and by environment."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from nhwc.kernels.native import build, library

loaded = library._loaded.__wrapped__  # as in a fresh process


@pytest.mark.parametrize("instruction_set", build.instruction_sets())
def test_the_environment_picks_an_instruction_set(instruction_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
