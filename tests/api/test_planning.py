"""Plans of real models: what they hold, where their times come from, and what they leave alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nhwc.api import FormatPlan, check_plan, costing, load_plan, plan_formats
from nhwc.errors import ModelError, PlanError
from nhwc.model import Call
from nhwc.optimization import Arrangement, rearranged
from nhwc.plan import FORMATS
from nhwc.schema import dump_plan
from nhwc.strides import CHANNELS_LAST, holds


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NHWC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.second(self.first(x))))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def image() -> torch.Tensor:
    return torch.rand(2, 3, 16, 16)


def prefer(monkeypatch: pytest.MonkeyPatch, ms_of: Any) -> list[Call]:
    """Let calls take made-up times; the calls that are asked for are answered."""
    asked: list[Call] = []

    def time_calls(calls: Any, repeats: int, budget_s: float, measured: Any, progress: Any) -> None:
        asked.extend(calls)
        for call in calls:
            measured(call, ms_of(call))

    monkeypatch.setattr(costing, "time_calls", time_calls)
    return asked


def is_channels_last(call: Call) -> bool:
    metas = [meta for meta in call.inputs if len(meta.shape) == 4]
    return bool(metas) and holds(metas[0].shape, metas[0].strides, CHANNELS_LAST)


def test_every_module_with_a_format_is_placed_and_the_model_is_as_before() -> None:
    net, x = model().train(), image()
    before = {name: (value.clone(), value.stride()) for name, value in net.state_dict().items()}
    random = torch.get_rng_state()
    plan = plan_formats(net, x, repeats=1)
    assert [placement.module for placement in plan.placements][:5] == ["0", "1.first", "1.second", "1.norm", "1"]
    assert not {"3", "4"} & {placement.module for placement in plan.placements}
    assert not plan.estimated
    assert net.training
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name][0])
        assert value.stride() == before[name][1]


@pytest.mark.parametrize("train", [False, True])
def test_the_faster_format_is_planned(monkeypatch: pytest.MonkeyPatch, train: bool) -> None:
    prefer(monkeypatch, lambda call: 1.0 if call.name == "clone" or is_channels_last(call) else 100.0)
    plan = plan_formats(model(), image(), train=train)
    formats = {placement.module: placement.format for placement in plan.placements}
    assert {formats[path] for path in ("0", "1.first", "1.second", "1.norm", "1")} == {"channels_last"}
    assert (plan.moves[0].where, plan.moves[0].module, plan.moves[0].format) == ("before", "", "channels_last")
    assert plan.predicted.planned <= plan.predicted.channels_last < plan.predicted.contiguous
    assert plan.training is train


def test_an_input_in_channels_last_needs_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, lambda call: 1.0 if call.name == "clone" or is_channels_last(call) else 100.0)
    assert plan_formats(model(), image().to(memory_format=torch.channels_last)).moves == ()


def test_contiguous_is_kept_where_channels_last_gains_less_than_its_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, lambda call: 100.0 if call.name == "clone" else 1.0 if is_channels_last(call) else 1.1)
    plan = plan_formats(model(), image())
    assert plan.format == "contiguous"
    assert plan.moves == ()


def test_gradients_are_converted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second convolution gains 4 in channels last: more than a conversion of 3, less than one there and back."""

    def ms_of(call: Call) -> float:
        if call.name == "clone":
            return 3.0
        if call.name != "convolution":
            return 0.0
        return 5.0 if is_channels_last(call) == (call.inputs[0].shape[1] == 3) else 1.0

    prefer(monkeypatch, ms_of)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    (move,) = plan_formats(net, image()).moves
    assert (move.format, move.ms, move.calls) == ("channels_last", 3.0, 1)
    assert plan_formats(net, image(), train=True).moves == ()


def test_a_loss_that_is_a_module_has_no_place_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp().mean()

    loss, net = Slow(), nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    prefer(monkeypatch, lambda call: 5.0 if ("exp" in call.operator) == is_channels_last(call) else 1.0)
    plan = plan_formats(net, image(), train=True, loss=lambda output: loss(output))
    assert {each.module for each in (*plan.placements, *plan.moves)} == {"", "0", "1"}
    check_plan(plan, net, image(), train=True)
    rearranged(net, Arrangement("", (plan,)))


def test_identical_calls_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prefer(monkeypatch, lambda _: 1.0)
    first = plan_formats(model(), image())
    shapes = [call.inputs[1].shape for call in asked if call.name == "convolution"]
    assert shapes.count((8, 8, 3, 3)) == 2  # two layers alike, once in each format
    asked.clear()
    assert plan_formats(model(), image()) == first
    assert asked == []


def test_what_the_budget_does_not_reach_is_estimated_and_said_so() -> None:
    plan = plan_formats(model(), image(), budget_s=0)
    assert all(placement.estimated for placement in plan.placements if placement.calls)
    assert plan.predicted.contiguous > 0


def test_a_model_that_raises_in_channels_last_is_planned_in_contiguous() -> None:
    class Viewing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(x.shape[0], -1)

    plan = plan_formats(nn.Sequential(nn.Conv2d(3, 8, 3), Viewing()), image(), repeats=1)
    assert (plan.format, plan.moves) == ("contiguous", ())
    assert plan.predicted.channels_last == float("inf")
    assert "does not run in channels last" in plan.placements[0].why


def test_volumes_are_planned_too() -> None:
    net = nn.Sequential(nn.ReLU(), nn.Conv3d(3, 8, 3))
    plan = plan_formats(net, torch.rand(1, 3, 6, 6, 6), repeats=1)
    assert [placement.module for placement in plan.placements] == ["0", "1"]
    assert {placement.format for placement in plan.placements} <= set(FORMATS)


def test_the_autocast_around_a_plan_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with weights that it has cast before, which no step casts again within it."""
    prefer(monkeypatch, lambda _: 1.0)
    net, x = model(), image()
    asked_for = plan_formats(net, x, amp=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        net(x)
        found = plan_formats(net, x)
        check_plan(asked_for, net, x)
    assert found == asked_for
    assert found.amp == "bfloat16"
    assert found.predicted != plan_formats(net, x).predicted


def test_plans_are_saved_and_loaded_and_a_stale_one_is_refused(tmp_path: Path) -> None:
    net, x = model(), image()
    plan = plan_formats(net, x, budget_s=0, target="small")
    loaded = load_plan(plan.save(tmp_path / "plan.json"))
    assert loaded == plan
    assert isinstance(loaded, FormatPlan)
    assert plan.differences(loaded) == ()
    assert "small" in str(plan)
    assert "FormatPlan of small" in repr(plan)
    check_plan(loaded, model(), image())
    for other, inputs, options, reason in [
        (net, (torch.rand(4, 3, 16, 16),), {}, "of shape"),
        (net, (x.double(),), {}, "of dtype float32"),
        (net, (x,), {"train": True}, "made for inference"),
        (net, (x,), {"amp": torch.bfloat16}, "autocast off"),
        (net, (), {"kwargs": {"input": x}}, "keywords"),
        (nn.Sequential(net), (x,), {}, "module tree"),
    ]:
        with pytest.raises(PlanError, match=f"the plan for small does not hold here: .*{reason}.*; make a new plan"):
            check_plan(loaded, other, *inputs, **options)  # type: ignore[arg-type]


def test_wrong_arguments_are_one_sentence() -> None:
    with pytest.raises(PlanError, match="not for a function"):
        plan_formats(image)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least 1 timing"):
        plan_formats(model(), image(), repeats=0)
    with pytest.raises(PlanError, match="0 seconds"):
        plan_formats(model(), image(), budget_s=-1)
    with pytest.raises(ModelError):
        plan_formats(model(), torch.rand(2, 5, 16, 16))


def test_an_interrupted_measuring_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    net = model()
    strides = [parameter.stride() for parameter in net.parameters()]

    def interrupt(call: Call) -> float:
        if any(meta.shape == (8, 3, 3, 3) for meta in call.inputs):
            raise KeyboardInterrupt
        return 1.0

    prefer(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        plan_formats(net, image())
    (path,) = cache.glob("operators-*.json")
    assert json.loads(path.read_text())["times"]
    assert [parameter.stride() for parameter in net.parameters()] == strides


def test_a_cache_that_cannot_be_used_is_one_warning(cache: Path) -> None:
    cache.write_text("in place of the folder")
    with pytest.warns(UserWarning, match="NHWC_CACHE") as told:
        plan_formats(model(), image(), repeats=1)
    assert len(told) == 1


def test_a_damaged_cache_is_set_aside_with_a_warning(cache: Path) -> None:
    plan_formats(model(), image(), repeats=1)
    (path,) = cache.glob("operators-*.json")
    path.write_text("{")
    with pytest.warns(UserWarning, match="set aside"):
        plan_formats(model(), image(), repeats=1)
    assert path.with_suffix(".damaged").read_text() == "{"
    assert json.loads(path.read_text())["times"]


def make_plan(die: bool) -> None:
    torch.set_num_threads(1)
    if die:
        costing._SAVE_EVERY_S = -1.0
        count = iter(range(5))

        def progress(stage: str, _done: int, _total: int) -> None:
            if stage == "measure" and next(count, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        plan_formats(model(), image(), repeats=1, progress=progress)
    plan_formats(model(), image(), repeats=1)


def test_two_that_plan_at_once_and_one_that_is_killed_leave_a_whole_cache(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=make_plan, args=(die,)) for die in (False, False, True)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes[:2]] == [0, 0]
    (path,) = cache.glob("operators-*.json")
    assert len(json.loads(path.read_text())["times"]) > 5
    assert not list(cache.glob("*.damaged"))


@pytest.mark.parametrize("kept", [{}, {"other": 1.0}, {"ms": float("nan")}, {"ms": -1.0}, {"ms": float("inf")}])
def test_kept_times_that_are_none_are_measured_anew(
    cache: Path, kept: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, lambda _call: 1.0)
    made = plan_formats(model(), image())
    (path,) = cache.glob("operators-*.json")
    document = json.loads(path.read_text())
    document["times"] = dict.fromkeys(document["times"], kept)
    path.write_text(json.dumps(document))
    assert plan_formats(model(), image()) == made


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"placements": [("module", "gone")]}, "it names the module 'gone', which the model does not have"),
        ({"moves": [("module", "gone")]}, "it names the module 'gone', which the model does not have"),
        ({"kernels": ["gone"]}, "it names the kernel 'gone', which nhwc does not have"),
    ],
)
def test_an_edited_plan_that_names_what_there_is_not_is_refused(edit: dict[str, Any], words: str) -> None:
    document = dump_plan(plan_formats(model(), image(), budget_s=0))
    move = {"where": "before", "module": "", "format": "contiguous", "nbytes": 1, "ms": 0.0, "calls": 1, "tensor": 0}
    document["moves"] = [move]
    for part, changes in edit.items():
        if part == "kernels":
            document[part] = changes
        else:
            document[part][0].update(changes)
    with pytest.raises(PlanError, match=words):
        check_plan(load_plan(document), model(), image())
