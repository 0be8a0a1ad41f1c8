"""Calls that no plan fits: the warning and the errors say what differs, where, and what to do."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nhwc
from nhwc.errors import EngineError


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


def net() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(*layers).eval()


def picture(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (2, 3, 12, 10)))


class Scaled(nn.Module):
    """Takes a tensor and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) * scale
        return y if bias is None else y + bias


@pytest.fixture
def fast() -> nhwc.Engine:
    return nhwc.engine(net(), picture(), budget_s=0)


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((2, 3, 8, 8), r"nhwc\.engine\(model, x, shapes=\[\(other_x,\)\]\)"),
        ((5, 3, 12, 10), r"build it with batches=\[5\] for batches of up to that size"),
        ((3, 12, 10), r"nhwc\.engine\(model, x, shapes=\[\(other_x,\)\]\)"),
    ],
)
def test_the_warning_says_both_shapes_and_the_fix(fast: nhwc.Engine, shape: tuple[int, ...], remedy: str) -> None:
    words = rf"built for \(2, 3, 12, 10\) float32 and was called with .*{shape[-1]}\) float32: torch ran .*{remedy}$"
    model = nn.Sequential(nn.Conv2d(3, 8, 3)).eval()
    with pytest.warns(RuntimeWarning, match=words) as caught:
        nhwc.engine(model, picture(), budget_s=0)(picture(*shape))
    assert "torch.Size" not in str(caught[0].message)


def nested(fast: nn.Module) -> nn.Module:
    return nn.Sequential(fast, nn.Identity())


def hooked(fast: nn.Module) -> nn.Module:
    fast.register_forward_hook(lambda *_: None)
    return fast


@pytest.mark.parametrize("form", [lambda fast: fast, nested, hooked], ids=["itself", "nested", "hooked"])
def test_the_warning_points_at_the_call(fast: nhwc.Engine, form: Any) -> None:
    called = form(fast)
    with pytest.warns(RuntimeWarning, match="torch ran this call") as caught:
        called(picture(2, 3, 8, 8))  # the call
    assert Path(caught[0].filename) == Path(__file__)
    assert "# the call" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (
            (picture(2, 4, 12, 10),),
            {},
            r"called with \(2, 4, 12, 10\) float32, .*\(RuntimeError: .*like the example's$",
        ),
        (
            (picture().double(),),
            {},
            r"called with \(2, 3, 12, 10\) float64, .*convert the input with \.to\(torch\.float32",
        ),
        (("a.jpg",), {}, r"called with 'a\.jpg', .*\(TypeError: .*give tensors where the example had tensors"),
        ((), {}, r"called with no arguments, .*by place and by name as the example had them$"),
        ((picture(), 2), {}, r"called with \(2, 3, 12, 10\) float32, 2, .*by place and by name"),
        ((), {"image": picture()}, r"called with image=\(2, 3, 12, 10\) float32, .*by place and by name"),
        ((picture().to("meta"),), {}, r".*float32 on meta, .*give plain tensors on the CPU$"),
    ],
    ids=["channels", "dtype", "string", "nothing", "too many", "keyword", "device"],
)
def test_what_the_model_does_not_take_is_one_sentence(
    fast: nhwc.Engine, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    with pytest.raises(
        EngineError, match=r"^the engine was built for \(2, 3, 12, 10\) float32 and was " + words
    ) as raised:
        fast(*args, **kwargs)
    assert isinstance(raised.value.__cause__, (RuntimeError, TypeError))
    assert "\n" not in str(raised.value)


def test_an_error_does_not_use_up_the_warning(fast: nhwc.Engine) -> None:
    with pytest.raises(EngineError):
        fast("a.jpg")
    with pytest.warns(RuntimeWarning):
        fast(picture(2, 3, 8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(picture(2, 3, 8, 8))


def test_other_values_and_keywords_are_told() -> None:
    model, bias = Scaled().eval(), torch.zeros(1)
    fast = nhwc.engine(model, picture(), 2.0, kwargs={"bias": bias}, budget_s=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(picture(), 2.0, bias=bias)
    with pytest.warns(RuntimeWarning, match=r"called with .* float32, 3\.0, bias=\(1,\) float32: .*shapes="):
        fast(picture(), 3.0, bias=bias)


def test_every_shape_that_it_was_built_for_is_named() -> None:
    fast = nhwc.engine(net(), picture(), shapes=[(picture(2, 3, 7, 9),)], budget_s=0)
    with pytest.warns(RuntimeWarning, match=r"for \(2, 3, 12, 10\) float32 or \(2, 3, 7, 9\) float32 and was called"):
        fast(picture(2, 3, 8, 8))
    with pytest.raises(
        EngineError, match=r"these inputs, \(1, 3, 7, 9\) float32; it was built for \(2, 3, 12, 10\) fl"
    ):
        fast.report(picture(1, 3, 7, 9))


def test_a_released_engine_says_what_it_takes(fast: nhwc.Engine) -> None:
    fast.release()
    with pytest.raises(EngineError, match=r"\(2, 3, 8, 8\) float32, and it has no original model .*shapes="):
        fast(picture(2, 3, 8, 8))
    with pytest.raises(EngineError, match=r"no original model .*: convert the input with \.to\(torch\.float32\)"):
        fast(picture().half())
