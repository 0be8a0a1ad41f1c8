"""The memory format of a run: measured where nothing else decides, kept by the runs that go on, and told."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training.runs import Kept, certain, settings, tiny

import nhwc
from nhwc import distributed
from nhwc.training.choosing import Choice, Comparison, choose
from nhwc.training.context import Context
from nhwc.training.run import run
from nhwc.training.stopping import StopRequest
from nhwc.training.trials import Trial

pytestmark = pytest.mark.usefixtures("few_threads")


def told(slower: bool) -> Callable[[Trial, float], Comparison]:
    return lambda trial, seconds: Comparison(slower, f"compared within {seconds:g} s", ("the cache is full",))


def unasked(_trial: Trial, _seconds: float) -> Comparison:
    raise AssertionError("nothing is to be measured")


def first_notes(compare: Any, **changes: Any) -> list[str]:
    kept = Kept()
    run(tiny, settings(measure_s=3, max_steps=1, **changes), [kept], compare)
    return kept.notes


def test_contiguous_is_taken_where_channels_last_is_proved_slower_and_only_there() -> None:
    slower, other = first_notes(told(True)), first_notes(told(False))
    assert slower[0] == "weights and batches in contiguous (auto: compared within 3 s), nhwc's kernels off"
    assert other[0] == "weights and batches in channels last (auto: compared within 3 s), nhwc's kernels on"
    assert "the cache is full" in slower


def test_a_measurement_that_fails_leaves_the_rule_and_says_so() -> None:
    def failing(_trial: Trial, _seconds: float) -> Comparison:
        raise RuntimeError("not enough memory\nand more")

    context = Context(settings(measure_s=3), torch.device("cpu"), distributed.World(), StopRequest())
    assert choose(Trial(tiny(3), (8, 3, 10, 10), 3, context), failing, None) == Choice(
        "channels_last",
        "auto: 2 two-dimensional convolutions; the measurement failed (RuntimeError: not enough memory)",
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"channels_last": "false"}, "as asked for"),
        ({"measure_s": 0}, "auto: 2 two-dimensional convolutions; nothing was measured"),
        ({"evaluate_only": True, "resume": Path("x")}, "auto: 2 two-dimensional convolutions; nothing was measured"),
        ({"compile": True}, "auto: 2 two-dimensional convolutions; a compiled model is not measured"),
        ({"fsdp": True}, "auto: 2 two-dimensional convolutions; a sharded model is not measured"),
        ({"model": nn.Flatten()}, "auto: the model has no two-dimensional convolution"),
        (
            {"model": nn.Sequential(nn.Conv2d(3, 3, 1), nn.SyncBatchNorm(3))},
            "auto: 1 two-dimensional convolution; its batch norm waits for other processes, and is not measured",
        ),
    ],
    ids=str,
)
def test_what_is_not_measured(changes: dict[str, Any], why: str) -> None:
    given = {"measure_s": 3, **changes}
    model = given.pop("model", tiny(3))
    context = Context(settings(**given), torch.device("cpu"), distributed.World(0, 0, 2), StopRequest())
    assert choose(Trial(model, (8, 3, 10, 10), 3, context), unasked, None).why == why


def test_a_run_that_goes_on_stays_in_the_format_of_its_checkpoint(tmp_path: Path) -> None:
    asked = settings(measure_s=3, folder=tmp_path, max_steps=2)
    run(certain, asked, [], told(True))
    assert torch.load(tmp_path / "last.pt", weights_only=True)["memory_format"] == "contiguous"
    kept = Kept()
    report = run(certain, replace(asked, resume=True, max_steps=4), [kept], unasked)
    assert "weights and batches in contiguous (auto: as before), nhwc's kernels off" in kept.notes
    assert report.memory_format == "contiguous"


@pytest.mark.parametrize(("given", "format_"), [("auto", "channels_last"), ("false", "contiguous")])
def test_an_older_checkpoint_says_its_format_by_the_setting(given: str, format_: str, tmp_path: Path) -> None:
    asked = settings(folder=tmp_path, max_steps=2, channels_last=given)
    run(certain, asked)
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    del state["memory_format"]
    torch.save(state, tmp_path / "last.pt")
    report = run(certain, replace(asked, resume=True, max_steps=4, channels_last="auto"))
    assert report.memory_format == format_


def test_ctrl_c_while_both_formats_are_measured_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    def interrupted(trial: Trial, _seconds: float) -> Comparison:
        step, _ = trial.contender("contiguous")
        signal.raise_signal(signal.SIGTERM)
        step()
        raise AssertionError("the step goes on")

    with pytest.raises(KeyboardInterrupt):
        run(certain, settings(measure_s=3, folder=tmp_path), [], interrupted)
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("amp", [None, "bf16"])
def test_a_step_is_the_whole_of_a_runs_and_leaves_the_model_alone(amp: str | None) -> None:
    model = tiny(3).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    strides = [each.stride() for each in model.parameters()]
    context = Context(settings(amp=amp), torch.device("cpu"), distributed.World(), StopRequest())
    seen: list[tuple[str, str, bool]] = []
    model.register_forward_hook(
        lambda module, given, logits: seen.append(
            (nhwc.layout_of(given[0]).kind.value, str(logits.dtype), module.training)
        )
    )
    trial = Trial(model, (8, 3, 10, 10), 3, context)
    for memory_format, with_kernels in (("contiguous", False), ("channels_last", True)):
        step, kernels = trial.contender(memory_format)
        step()
        assert kernels is with_kernels
    dtype = "torch.float32" if amp is None else "torch.bfloat16"
    assert seen == [("contiguous", dtype, True), ("channels_last", dtype, True)]
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [each.stride() for each in model.parameters()] == strides
    assert all(each.grad is None for each in model.parameters())
