"""Kernels for one model only: on in its forward and backward passes, and nowhere else."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from contextlib import ExitStack

import pytest
import torch
from torch import nn

import nhwc
from nhwc.kernels import active, switch
from nhwc.optimization.scope import kernels_of, scope, unscope

IMAGE = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)


class Watching(nn.Module):
    """Notes which kernels are on while it runs, forward and backward; raises what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.forward_active: list[tuple[str, ...]] = []
        self.backward_active: list[tuple[str, ...]] = []
        self.raises: list[BaseException] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forward_active.append(active())
        if self.raises:
            raise self.raises.pop()
        return Passing.apply(self.conv(x), self.backward_active)


class Passing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, notes):
        ctx.notes = notes
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        ctx.notes.append(active())
        if "fail" in ctx.notes:
            raise RuntimeError("the backward pass failed")
        return gradient, None


def scoped(*names: str) -> Watching:
    model = Watching()
    with ExitStack() as undo:
        scope(model, names, undo)
        undo.pop_all()
    return model


def test_on_in_forward_and_backward_alone() -> None:
    model = scoped("softmax", "pad")
    loss = model(IMAGE).sum()
    assert active() == ()
    loss.backward()
    assert active() == ()
    assert model.forward_active == model.backward_active == [("pad", "softmax")]


def test_off_after_an_exception_and_after_ctrl_c() -> None:
    model = scoped("softmax")
    for error in (ValueError(), KeyboardInterrupt()):
        model.raises = [error]
        with pytest.raises(type(error)):
            model(IMAGE)
        assert active() == ()


def test_off_after_a_backward_pass_that_failed() -> None:
    model = scoped("softmax")
    model.backward_active.append("fail")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the backward pass failed"):
        model(IMAGE).sum().backward()
    gc.collect()
    assert active() == ()


def test_kernels_of_others_stay_on() -> None:
    model = scoped("softmax")
    with nhwc.kernels.use("pad", "softmax"):
        model(IMAGE).sum().backward()
        assert active() == ("pad", "softmax")


def test_another_model_runs_the_originals() -> None:
    model = scoped("softmax")
    model(IMAGE)
    assert "softmax" in switch._installed  # asleep, so that the next call is cheap
    assert not IMAGE.softmax(1).is_contiguous(memory_format=torch.channels_last)
    with nhwc.kernels.use("softmax"):
        assert IMAGE.softmax(1).is_contiguous(memory_format=torch.channels_last)


def test_kernels_leave_the_dispatcher_with_their_model() -> None:
    model = scoped("softmax")
    model(IMAGE)
    del model
    gc.collect()
    with nhwc.kernels.use("pad"):
        pass
    assert "softmax" not in switch._installed


def test_copies_and_pickles_keep_them_and_their_class() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with ExitStack() as undo:
        scope(model, ("pad",), undo)
        undo.pop_all()
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(saved, weights_only=False),
    ):
        assert kernels_of(other) == ("pad",)
        assert isinstance(other, nn.Sequential)
        assert torch.equal(other(IMAGE), model(IMAGE))
        unscope(other)
        assert type(other) is nn.Sequential
    assert kernels_of(model) == ("pad",)


def test_undone_it_is_the_class_of_before() -> None:
    model = Watching()
    with ExitStack() as undo:
        scope(model, (), undo)
        assert type(model) is not Watching
    assert type(model) is Watching
    assert kernels_of(model) is None


def test_compiled_whole_and_in_part() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    expected = model(IMAGE)
    with ExitStack() as undo:
        scope(model, (), undo)
        undo.pop_all()
    whole = torch.compile(model, backend="eager", fullgraph=True)
    part = torch.compile(lambda x: model(x) + 0, backend="eager", fullgraph=True)
    assert torch.allclose(whole(IMAGE), expected)
    assert torch.allclose(part(IMAGE), expected)
    torch._dynamo.reset()
