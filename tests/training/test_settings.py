"""Settings that make no sense are refused when they are written down; schedules are functions of the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from training.runs import tiny

import nhwc
from nhwc import TrainSettings
from nhwc.errors import TrainingError
from nhwc.training import naming
from nhwc.training.schedules import learning_rate


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"amp": "fp8"}, "amp 'fp8' is unknown; use bf16 or fp16"),
        ({"channels_last": "yes"}, "channels_last 'yes' is unknown; use auto, true or false"),
        ({"channels_last": None}, "channels_last None is unknown"),
        ({"optimizer": "lamb"}, "optimizer 'lamb' is unknown; use sgd or adamw"),
        ({"schedule": "linear"}, "schedule 'linear' is unknown"),
        ({"epochs": 0}, "epochs is 0; it must be a whole number of at least 1"),
        ({"epochs": 1.5}, "epochs is 1.5; it must be a whole number"),
        ({"epochs": True}, "epochs is True"),
        ({"epochs": None}, "epochs is None"),
        ({"samples": 10**30}, "samples is 10+; it must be a whole number of at least 1 and at most 2147483647"),
        ({"seed": 2**64}, "seed is 18446744073709551616; .* at most 9223372036854775807"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"workers": 10**6}, "workers is 1000000; .* at most 1024"),
        ({"measure_s": 601}, "measure_s is 601; it must be a finite number of at least 0 and at most 600"),
        ({"measure_s": float("nan")}, "measure_s is nan"),
        ({"lr": float("inf")}, "lr is inf; it must be a finite number of at least 0$"),
        ({"momentum": float("inf")}, "momentum is inf"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"warmup_epochs": float("inf")}, "warmup_epochs is inf"),
        ({"ema": float("nan")}, "ema is nan"),
        ({"ema": "0.9"}, "ema is 0.9; it must be at least 0"),
        ({"decay": float("inf")}, "decay is inf"),
        ({"label_smoothing": None}, "label_smoothing is None"),
        ({"batch": 0}, "batch is 0"),
        ({"workers": -1}, "workers is -1; it must be a whole number of at least 0"),
        ({"epochs": "3"}, "epochs is '3'; it must be a whole number"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"save_every": 0, "folder": Path("run")}, "save_every is 0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0; it must be at least 0 and less than 1"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"std": (0.1, 0.0, 0.1)}, "give a number per channel, of images scaled to 0 to 1: above 0 and at most 1"),
        ({"mean": (123.7, 116.3, 103.5)}, "of images scaled to 0 to 1: at least 0 and at most 1"),
        ({"mean": (float("nan"),)}, "mean is .nan,.; give a number per channel"),
        ({"mean": ()}, "give a number per channel"),
        ({"mean": 0.5}, "mean is 0.5; it must be a tuple with a number per channel, or None"),
        ({"kernels": "no"}, "kernels is 'no'; it must be True, False or None"),
        ({"compile": "no"}, "compile is 'no'; it must be True or False"),
        ({"folder": 5}, "folder is 5; it must be a path or None"),
        ({"resume": 5}, "resume is 5; it must be True, False or the path of a checkpoint"),
        ({"evaluate": 5}, "evaluate is 5; it must be a path or None"),
        ({"arch": 5}, "arch is 5; it must be a name or None"),
        ({"kernels": True, "compile": True}, "kernels step aside under torch.compile"),
        ({"kernels": True, "channels_last": "false"}, "kernels serve channels last alone"),
        ({"warmup_epochs": 91}, "warmup_epochs is 91, more than epochs, 90"),
        ({"resume": True}, "resume and save_every need a folder"),
        ({"save_every": 5}, "resume and save_every need a folder"),
        ({"evaluate_only": True}, "evaluate_only needs a checkpoint"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_make_no_sense(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        TrainSettings("synthetic", **changes)


def test_data_is_a_name() -> None:
    assert TrainSettings(Path("photographs")).data == "photographs"  # type: ignore[arg-type]
    with pytest.raises(
        TrainingError, match=r"data is of type list; it must be a folder.*write a loop with nhwc.data.Loader"
    ):
        TrainSettings([(0, 1)])  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"settings are of type list; pass nhwc.TrainSettings"):
        nhwc.train(tiny, [(0, 1)])  # type: ignore[arg-type]


def test_settings_are_called_as_the_asker_calls_them() -> None:
    with naming({"max_steps": "--steps"}), pytest.raises(TrainingError, match=r"^--steps is 0"):
        TrainSettings("synthetic", max_steps=0)
    with pytest.raises(TrainingError, match=r"^max_steps is 0"):
        TrainSettings("synthetic", max_steps=0)


def test_settings_are_plain_for_checkpoints_and_logs() -> None:
    asked = TrainSettings("synthetic", folder=Path("run"), mean=(0.5,), device=torch.device("cpu"))  # type: ignore[arg-type]
    plain = asked.as_plain()
    assert (plain["folder"], plain["mean"], plain["amp"], plain["device"]) == ("run", [0.5], None, "cpu")
    assert json.loads(json.dumps(plain)) == plain


def rates(**changes: Any) -> list[float]:
    asked = TrainSettings("synthetic", lr=1.0, epochs=4, **changes)
    return [learning_rate(asked, epoch, step, 5) for epoch in range(4) for step in range(5)]


def test_cosine_falls_from_the_top_to_almost_nothing() -> None:
    found = rates()
    assert found[0] == 1.0
    assert found[10] == pytest.approx(0.5)
    assert found == sorted(found, reverse=True)
    assert 0 < found[19] < 0.01
    assert learning_rate(TrainSettings("synthetic", epochs=4), 5, 0, 5) == 0.0


def test_steps_count_epochs() -> None:
    found = rates(schedule="step", decay_every=2, decay=0.5)
    assert found == [1.0] * 10 + [0.5] * 10


def test_warm_up_rises_in_equal_steps_to_the_top() -> None:
    for schedule in ("cosine", "constant", "step"):
        found = rates(schedule=schedule, warmup_epochs=1)
        assert found[:6] == pytest.approx([step / 6 for step in range(1, 7)])
    assert rates(schedule="constant", warmup_epochs=0.5)[2:] == [1.0] * 18


def test_warm_up_alone() -> None:
    found = rates(warmup_epochs=4)
    assert found == pytest.approx([step / 21 for step in range(1, 21)])


@pytest.mark.parametrize("schedule", ["cosine", "step", "constant"])
@pytest.mark.parametrize("epoch", range(1, 4))
def test_the_rate_of_an_epoch_does_not_depend_on_its_number_of_steps(schedule: str, epoch: int) -> None:
    asked = TrainSettings("synthetic", lr=1.0, epochs=4, schedule=schedule, decay_every=1, warmup_epochs=1)
    found = {round(learning_rate(asked, epoch, 0, steps), 12) for steps in (1, 2, 5, 40)}
    assert len(found) == 1
