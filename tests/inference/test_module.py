"""The engine as a module: threads, shapes, batches, strides, refusals."""

from __future__ import annotations

import copy
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from inference.engines import assert_right, fast
from torch import nn

import nhwc
from nhwc.errors import EngineError


def model() -> nn.Module:
    torch.manual_seed(4)
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 5)).eval()


def picture(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (2, 3, 12, 10)))


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads: int) -> None:
    net, x = model(), picture()
    engine = fast(net, x)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_right(net, x, engine=engine)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("form", ["channels last", "a crop", "reversed", "inference"])
def test_inputs_in_any_strides(form: str) -> None:
    net, x = model(), picture()
    engine = fast(net, x)
    other = {
        "channels last": lambda: x.contiguous(memory_format=torch.channels_last),
        "a crop": lambda: picture(2, 3, 20, 20)[:, :, 3:15, 5:15],
        "reversed": lambda: x.transpose(2, 3).contiguous().transpose(2, 3),
        "inference": lambda: x,
    }[form]()
    with torch.inference_mode(form == "inference"):
        assert_right(net, other, engine=engine)


def test_results_are_fresh_and_in_channels_last() -> None:
    net = nn.Conv2d(3, 8, 3).eval()
    engine = fast(net, picture())
    first = engine(picture())
    kept = first.clone()
    assert first.is_contiguous(memory_format=torch.channels_last)
    second = engine(picture())
    assert torch.equal(first, kept)
    assert first.data_ptr() != second.data_ptr()


class Everything(nn.Module):
    """Returns what is hard to return: inputs, constants, parts, one value twice, views."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 1)
        self.numbers = nn.Parameter(torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = self.layer(x)
        return [x, self.numbers, y[:, 2:5], y, y, y.flatten(1), y.permute(0, 2, 3, 1), torch.cat([y, x], 1)]


def test_anything_can_be_returned() -> None:
    net, x = Everything().eval(), picture()
    assert_right(net, x)
    assert fast(net, x)(x)[1].data_ptr() != net.numbers.data_ptr()


def test_many_python_threads_at_once() -> None:
    net = model()
    engine = fast(net, picture())
    wrong = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            x = torch.randn(2, 3, 12, 10, generator=generator)
            with torch.no_grad():
                if not torch.allclose(engine(x), net(x), atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_another_shape_runs_the_original_with_one_warning() -> None:
    net = model()
    engine = fast(net, picture())
    with pytest.warns(RuntimeWarning, match="torch ran this call"):
        result = engine(picture(1, 3, 8, 8))
    assert result.shape == (1, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine(picture(1, 3, 8, 8))


def test_further_shapes_and_batches() -> None:
    net = model()
    engine = nhwc.engine(net, picture(), shapes=[(picture(2, 3, 7, 9),)], batches=(5, 1), budget_s=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in [(2, 3, 12, 10), (2, 3, 7, 9), (1, 3, 12, 10), (3, 3, 12, 10), (4, 3, 12, 10), (5, 3, 12, 10)]:
            assert_right(net, picture(*shape), engine=engine)
    with pytest.warns(RuntimeWarning):
        engine(picture(6, 3, 12, 10))


def test_training_and_gradients_are_refused() -> None:
    engine = fast(model(), picture())
    assert engine.eval() is engine
    with pytest.raises(EngineError, match="cannot be trained"):
        engine.train()
    with pytest.raises(EngineError, match="gives no gradients"):
        engine(picture().requires_grad_())
    with torch.no_grad():
        engine(picture().requires_grad_())


def test_the_report_names_every_step_and_what_fell_back() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.LPPool2d(2, 2)).eval()
    engine = nhwc.engine(net, picture(), budget_s=1)
    report = engine.report()
    assert report.steps[0].module == "0"
    assert report.steps[0].operation == "convolution 3x3 + relu"
    assert report.steps[0].flop == 2 * 2 * 4 * 10 * 8 * 27
    assert {step.module for step in report.steps} <= {"0", "2"}
    assert report.accuracy is not None
    assert report.accuracy.holds
    assert 0 <= report.fallback_ms <= report.steps_ms
    assert all(step.algorithm == "torch" for step in report.fallbacks)


def test_autocast_changes_nothing() -> None:
    net, x = model(), picture()
    engine = fast(net, x)
    with torch.autocast("cpu"):
        assert engine(x).dtype == torch.float32


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_copies_run_by_themselves(copied: Callable[[nn.Module], nn.Module]) -> None:
    engine, x = fast(model(), picture()), picture()
    other = copied(engine)
    assert other is not engine
    assert torch.equal(other(x), engine(x))


def test_the_engine_has_no_parameters_of_its_own() -> None:
    engine = fast(model(), picture())
    assert list(engine.parameters()) == []
    assert engine.state_dict() == {}


class Pictures(torch.utils.data.Dataset[torch.Tensor]):
    """What an engine makes of pictures, in the process that loads them."""

    def __init__(self, engine: nn.Module, pictures: torch.Tensor) -> None:
        self.engine, self.pictures = engine, pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> torch.Tensor:
        result: torch.Tensor = self.engine(self.pictures[index])
        return result


def test_in_the_workers_of_a_loader() -> None:
    net, pictures = model(), torch.randn(4, 2, 3, 12, 10)
    engine = fast(net, pictures[0])
    engine(pictures[0])
    loader = torch.utils.data.DataLoader(Pictures(engine, pictures), num_workers=1, multiprocessing_context="fork")
    with torch.no_grad():
        for x, (result,) in zip(pictures, loader, strict=True):
            torch.testing.assert_close(result, net(x))


@pytest.mark.slow
def test_memory_does_not_grow() -> None:
    engine, x = fast(model(), picture()), picture()
    sizes = []
    for _ in range(3):
        for _ in range(5000):
            engine(x)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))
    assert sizes[-1] - sizes[0] < 4_000_000


@pytest.mark.slow
def test_sixteen_threads_for_a_minute() -> None:
    net = model()
    engine, wrong, end = fast(net, picture()), [], time.monotonic() + 60

    def work(seed: int) -> None:
        x = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            expected = net(x)
            while time.monotonic() < end:
                if not torch.allclose(engine(x), expected, atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
