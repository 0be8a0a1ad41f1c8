"""What the user's process has set, or does meanwhile, changes nothing about an engine."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import nhwc
from nhwc.inference.building import relative_error
from nhwc.inference.held_back import held_back
from nhwc.inference.measurements import Measurements


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3, padding=1)
    ).eval()


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.mark.usefixtures("defaults")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_default_dtype_is_not_the_engines(net: nn.Module, dtype: torch.dtype) -> None:
    x = torch.randn(1, 3, 9, 9)
    before = nhwc.engine(net, x, budget_s=0)
    torch.set_default_dtype(dtype)
    after = nhwc.engine(net, x, budget_s=0)
    for fast in (before, after):
        torch.testing.assert_close(fast(x), net(x))


@pytest.mark.usefixtures("defaults")
def test_the_default_device_is_not_the_engines(net: nn.Module) -> None:
    x = torch.randn(1, 3, 9, 9)
    expected = net(x)
    before = nhwc.engine(net, x, budget_s=0)
    torch.set_default_device("meta")
    after = nhwc.engine(net, x, budget_s=0.1)
    results = [fast(x) for fast in (before, after)]
    torch.set_default_device(None)
    for result in results:
        torch.testing.assert_close(result, expected)


def test_an_input_of_another_device_runs_through_the_model(net: nn.Module) -> None:
    x = torch.randn(1, 3, 9, 9)
    fast = nhwc.engine(net, x, budget_s=0)
    with pytest.warns(RuntimeWarning, match="was called with .* on meta: torch ran this call"):
        assert fast(x.to("meta")).device.type == "meta"


def test_an_example_that_is_expanded_takes_whole_inputs(net: nn.Module) -> None:
    fast = nhwc.engine(net, torch.randn(1, 3, 1, 9).expand(2, 3, 9, 9), budget_s=0)
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(fast(x), net(x))


def test_building_leaves_the_example_as_it_was_and_judges_the_same_input() -> None:
    writes = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3)).eval()
    x = torch.randn(1, 3, 9, 9)
    kept = x.clone()
    accuracy = nhwc.engine(writes, x, budget_s=0).report().accuracy
    assert torch.equal(x, kept)
    assert accuracy is not None
    assert accuracy.error < 1e-5


def test_a_nan_is_an_infinite_error() -> None:
    exact = torch.ones(3, dtype=torch.float64)
    assert relative_error(torch.tensor([1.0, float("nan"), 1.0]), exact) == float("inf")


def test_two_threads_that_capture_put_back_what_was_there() -> None:
    before = sys.stderr, logging.getLogger("torch.export").disabled, list(warnings.filters)
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with held_back():
            inside.set()
            go.wait(5)

    def second() -> None:
        inside.wait(5)
        with held_back():
            pass

    threads = [threading.Thread(target=each) for each in (first, second)]
    for each in threads:
        each.start()
    inside.wait(5)
    go.set()
    for each in threads:
        each.join()
    assert (sys.stderr, logging.getLogger("torch.export").disabled, list(warnings.filters)) == before


def test_a_cache_folder_that_cannot_be_is_no_error() -> None:
    measured = Measurements("m", Path("/tmp") / ("x" * 300))
    measured.put("request", {"a": 1.0})
    measured.save()
    assert measured.get("request") == {"a": 1.0}
