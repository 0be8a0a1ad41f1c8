"""What makes no sense is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import nhwc

X = torch.randn(1, 3, 9, 9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batches": 8}, r"batches=8: give a list"),
        ({"batches": [0]}, r"batches=\[0\]: give a list"),
        ({"budget_s": -1}, "budget_s=-1: give seconds"),
        ({"budget_s": "2"}, "budget_s='2': give seconds"),
        ({"threads": 0}, "threads=0: give 1 or more"),
        ({"threads": "2"}, "threads='2': give 1 or more"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(nhwc.EngineError, match=said):
        nhwc.engine(nn.Conv2d(3, 4, 3).eval(), X, **options)


def test_what_is_no_module() -> None:
    with pytest.raises(nhwc.EngineError, match=r"torch\.nn\.Module, not of a function"):
        nhwc.engine(lambda x: x, X)  # type: ignore[arg-type]


def test_no_example() -> None:
    with pytest.raises(nhwc.EngineError, match="give example inputs"):
        nhwc.engine(nn.Conv2d(3, 4, 3).eval())


@pytest.fixture(scope="module")
def fast() -> nhwc.Engine:
    return nhwc.engine(nn.Conv2d(3, 4, 3).eval(), X, budget_s=0)


@pytest.mark.parametrize("change", ["half", "bfloat16", "double"])
def test_an_engine_stays_in_float32(fast: nhwc.Engine, change: str) -> None:
    with pytest.raises(nhwc.EngineError, match="computes in float32 on the CPU"):
        getattr(fast, change)()


def test_what_an_engine_is_already_it_can_be_asked_to_be(fast: nhwc.Engine) -> None:
    assert fast.float() is fast
    assert fast.to("cpu") is fast
    assert fast.to(memory_format=torch.channels_last) is fast
