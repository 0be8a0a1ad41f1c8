"""What the allocator measurement compares, and that it takes paired samples."""

import sys

import pytest
from machine.made_up import Tree
from machine.test_allocators import LIBC, TCMALLOC

from nhwc.machine import allocation
from nhwc.machine.allocation import TUNABLES, Contest, contest
from nhwc.machine.child import ChildError

FAKE = """
import os
from nhwc.machine.child import serve
name = "tcmalloc" if os.environ.get("LD_PRELOAD", "").endswith("ghost.so") else "glibc malloc"
fast = "MALLOC_TOP_PAD_" in os.environ
def answer(question):
    if "hello" in question:
        return {"allocator": name, "onednn": [], "capability": "AVX2"}
    return {"ms": 10.0 if fast else 20.0, "faults": 0.0 if fast else 500.0}
serve(answer)
"""


def test_nothing_installed_is_measured_by_settings_of_glibc(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write({"proc/self/maps": LIBC})
    monkeypatch.setattr("nhwc.machine.allocators._malloc_address", lambda: None)
    found = contest(tree.sources(environ={"A": "b"}))
    assert found is not None
    assert (found.plain, found.other) == ({"A": "b"}, {"A": "b", **TUNABLES})
    assert found.setting.startswith("MALLOC_MMAP_THRESHOLD_=")


def test_an_installed_library_is_preloaded_before_what_is(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write({"proc/self/maps": LIBC, "lib/libtcmalloc_minimal.so.4": ""})
    monkeypatch.setattr("nhwc.machine.allocators._malloc_address", lambda: None)
    found = contest(tree.sources(environ={"LD_PRELOAD": "first.so"}))
    library = tree.root / "lib" / "libtcmalloc_minimal.so.4"
    assert found is not None
    assert (found.other_name, found.other["LD_PRELOAD"]) == ("tcmalloc", f"{library}:first.so")
    assert found.setting == f"LD_PRELOAD={library}"


def test_what_already_serves_is_compared_with_glibc(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write({"proc/self/maps": LIBC + TCMALLOC})
    monkeypatch.setattr("nhwc.machine.allocators._malloc_address", lambda: None)
    found = contest(tree.sources(environ={"LD_PRELOAD": "libtcmalloc.so", "A": "b"}))
    assert found == Contest({"A": "b"}, {"LD_PRELOAD": "libtcmalloc.so", "A": "b"}, "tcmalloc", "")


def test_settings_that_are_there_are_compared_with_none(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write({"proc/self/maps": LIBC})
    monkeypatch.setattr("nhwc.machine.allocators._malloc_address", lambda: None)
    environ = {"GLIBC_TUNABLES": "glibc.malloc.top_pad=1", "A": "b"}
    found = contest(tree.sources(environ=environ))
    assert found is not None
    assert (found.plain, found.other, found.setting) == ({"A": "b"}, environ, "")


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_other_systems_have_nothing_to_preload(tree: Tree, system: str) -> None:
    assert contest(tree.sources(system=system)) is None


def test_samples_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_COMMAND", [sys.executable, "-c", FAKE])
    chosen = Contest({}, dict(TUNABLES), "other", "MALLOC_TOP_PAD_=1")
    samples, said = allocation.measure(chosen, budget_s=0.0, fewest=3)
    assert (samples.plain_ms, samples.other_ms) == ((20.0,) * 3, (10.0,) * 3)
    assert (samples.plain_faults, samples.other_faults) == ((500.0,) * 3, (0.0,) * 3)
    assert said["capability"] == "AVX2"


def test_a_preload_without_effect_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_COMMAND", [sys.executable, "-c", FAKE])
    with pytest.raises(ChildError, match="preloading had no effect"):
        allocation.measure(Contest({}, {}, "tcmalloc", "LD_PRELOAD=/nowhere.so"))


def test_the_real_child_says_which_instruction_set_onednn_uses(tree: Tree) -> None:
    import os

    said = allocation.look(tree.sources(environ=dict(os.environ)))
    assert any(",info,cpu,isa:" in line for line in said["onednn"])
