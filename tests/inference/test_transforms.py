"""Calls that torch records or transforms: refused in a sentence, where kernels would read memory that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import nhwc
from nhwc.errors import EngineError
from nhwc.inference.module import Engine

X = torch.linspace(-1, 1, 2 * 3 * 5 * 5).view(2, 3, 5, 5)


@pytest.fixture(scope="module")
def fast() -> Engine:
    made = nhwc.engine(nn.Conv2d(3, 4, 3).eval(), X, budget_s=0)
    made(X)
    return made


def in_fake_mode(fast: Engine) -> Any:
    with FakeTensorMode() as mode:
        return fast(mode.from_tensor(X))


def of_real_in_fake_mode(fast: Engine) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return fast(X)


def with_tangent(fast: Engine) -> Any:
    with forward_ad.dual_level():
        return fast(forward_ad.make_dual(X, X))  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:.*torch.jit.*deprecated")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (in_fake_mode, "FakeTensorMode"),
        (of_real_in_fake_mode, "FakeTensorMode"),
        (with_tangent, "tangent"),
        (lambda fast: torch.jit.trace(fast, X), r"torch\.jit\.trace"),  # type: ignore[no-untyped-call]
        (torch.jit.script, r"torch\.jit\.script"),
        pytest.param(
            lambda fast: torch.export.export(fast, (X,)),
            r"torch\.export",
            marks=pytest.mark.skipif(
                torch.__version__ < (2, 12), reason="torch 2.11 leaves its hook where a model raises"
            ),
        ),
        (lambda fast: torch.vmap(fast)(X[None]), r"torch\.vmap"),
        (lambda fast: torch.func.jvp(fast, (X,), (X,)), r"torch\.func\.jvp"),
        (lambda fast: torch.func.grad(lambda x: fast(x).sum())(X), r"torch\.func\.grad"),
        (lambda fast: fast.load_state_dict(nn.Conv2d(3, 4, 3).state_dict()), r"engine\.refresh"),
    ],
)
def test_refused(fast: Engine, call: Callable[[Engine], Any], said: str) -> None:
    before = fast(X)
    with pytest.raises(EngineError, match=said):
        call(fast)
    assert torch.equal(fast(X), before)


def test_fake_tensors_do_not_reach_the_kernels(fast: Engine) -> None:
    with pytest.raises(EngineError, match="plain tensors"):
        fast(FakeTensorMode().from_tensor(X))


def test_modes_that_only_watch_are_taken(fast: Engine) -> None:
    with FlopCounterMode(display=False):
        found = fast(X)
    assert torch.equal(found, fast(X))
