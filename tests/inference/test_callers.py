"""Whose lines errors and warnings point at."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import nhwc
from nhwc.inference.callers import first_line, is_users, stack_level, users_place


@pytest.mark.parametrize("module", [torch, nhwc, nn, json, sys.modules["torch.nn.modules.conv"]], ids=str)
def test_libraries_are_not_the_users(module: object) -> None:
    assert not is_users(str(module.__file__))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["/home/me/torch/train.py", "/home/me/nhwc/inference/net.py", pytest.__file__])
def test_other_files_are(name: str) -> None:
    assert is_users(name)


class Warns(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_warning_below_torchs_frames_points_at_the_call() -> None:
    code = compile(
        "def hook(module, args):\n    warnings.warn('so', stacklevel=stack_level())\n", nhwc.__file__, "exec"
    )
    names = {"warnings": warnings, "stack_level": stack_level}
    exec(code, names)
    net = Warns()
    net.register_forward_pre_hook(names["hook"])  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="so") as caught:
        net(torch.zeros(1))  # the line
    assert Path(caught[0].filename) == Path(__file__)
    assert "# the line" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


def test_the_innermost_line_of_the_user_is_told_with_its_code() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        place, code = users_place(error)
        assert place.startswith(f"{__file__}:")
        assert place.endswith("in test_the_innermost_line_of_the_user_is_told_with_its_code")
        assert code == 'json.loads("{")'


def test_an_error_without_words_is_its_type() -> None:
    assert first_line(ValueError()) == "ValueError"
    assert first_line(RuntimeError("\n  one.\ntwo")) == "RuntimeError: one"
