"""``--kernels``: alone, named, repeated; what it goes with and what not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import test_verify
from cli.conftest import FakeApi, Ran

from nhwc.cli.kernels import completed

Run = Callable[..., Ran]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["net", "--kernels"], ["net", "--kernels=all"]),
        (["net", "--kernels", "--train"], ["net", "--kernels=all", "--train"]),
        (["net", "--kernels", "-o", "a.json"], ["net", "--kernels=all", "-o", "a.json"]),
        (["net", "--kernels", "pad,cat"], ["net", "--kernels", "pad,cat"]),
        (["net", "--kernels=pad"], ["net", "--kernels=pad"]),
        (["net", "-o", "kernels"], ["net", "-o", "kernels"]),
    ],
)
def test_alone_it_means_all(written: list[str], meant: list[str]) -> None:
    assert completed(written) == meant


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], []),
        (["--kernels"], ["all"]),
        (["--kernels", "pad"], ["pad"]),
        (["--kernels", "pad, cat", "--kernels", "roll", "--kernels=pad"], ["pad", "cat", "roll"]),
    ],
)
def test_the_audit_runs_with_them_on(
    run: Run, api: FakeApi, tiny: Path, arguments: list[str], names: list[str]
) -> None:
    assert run("audit", "tiny.py:with_one", *arguments).code == 0
    assert api.kernels == [(names, "cpu")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kernels", "--static"], "--kernels would do nothing with --static: they step aside for fake tensors"),
        (["--kernels", "pad", "--compile"], "--kernels would do nothing with --compile"),
        (["--kernels", "pad,,cat"], "--kernels names no kernel; write it alone for all of them"),
        (["--kernels", "all,pad"], "--kernels all stands alone; leave out the others"),
    ],
)
def test_what_makes_no_sense_is_bad_input(run: Run, api: FakeApi, tiny: Path, arguments: list[str], words: str) -> None:
    ran = run("audit", "tiny.py:with_one", *arguments)
    assert (ran.code, api.calls) == (2, [])
    assert words in ran.err


def test_a_verification_gives_every_variant_its_kernels_and_tells_which(folder: Path) -> None:
    variants = "channels_last,channels_last+bf16"
    asked = ("models_to_verify.py:sound", "--variants", variants, "--kernels", "pad,cat", "--format", "json")
    ran = test_verify.run(*asked)
    assert (ran.code, ran.err) == (0, "")
    told = {each["name"]: each["kernels"] for each in json.loads(ran.out)["variants"]}
    assert told == {
        "channels_last+kernels:pad:cat": ["cat", "pad"],
        "channels_last+bf16+kernels:pad:cat": ["cat", "pad"],
    }
    text = test_verify.run("models_to_verify.py:sound", "--kernels=cat").out
    assert "Passed: channels_last+kernels:cat computes what contiguous format computes." in text
    assert "kernels were on: cat" in text


def test_a_variant_that_says_which_kernels_are_on_leaves_no_choice(folder: Path) -> None:
    ran = test_verify.run("models_to_verify.py:sound", "--variants", "channels_last+kernels:pad", "--kernels")
    assert (ran.code, ran.out) == (2, "")
    assert "--kernels and the variant channels_last+kernels:pad both say which kernels are on; leave one out" in ran.err


def test_a_name_that_no_kernel_has_is_bad_input(folder: Path) -> None:
    ran = test_verify.run("models_to_verify.py:sound", "--kernels", "padd")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no kernel 'padd'; did you mean 'pad'?" in ran.err


folder = test_verify.folder
