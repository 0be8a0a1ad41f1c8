"""A run that was stopped goes on as if it had not been."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training.runs import Kept, resumed, settings, tiny, train

import nhwc
from nhwc.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("few_threads")

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "contiguous": {"channels_last": "false"},
    "accumulated": {"accumulate": 3, "batch": 4, "samples": 40, "ema": 0.9},
    "bf16": {"amp": "bf16", "label_smoothing": 0.1, "warmup_epochs": 1},
    "fp16": {"amp": "fp16", "optimizer": "adamw", "lr": 0.01},
    "adamw": {"optimizer": "adamw", "schedule": "step", "decay_every": 1, "print_every": 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stopped_anywhere_repeats_the_unbroken_one_bit_for_bit(kind: str, tmp_path: Path) -> None:
    whole = train(settings(**KINDS[kind]))
    assert len(whole.evaluations) == 3
    for stop_at in (1, 4, 6, 11) if kind == "plain" else (5, 8):
        again = resumed(tmp_path / str(stop_at), stop_at, settings, **KINDS[kind])
        assert again.losses() == whole.losses(), stop_at
        assert again.judged() == whole.judged(), stop_at


def test_a_run_stopped_twice_and_while_it_is_evaluated(tmp_path: Path) -> None:
    whole = train(settings())
    first = train(settings(folder=tmp_path), stop_at=2)
    second = train(settings(folder=tmp_path, resume=True), stop_at=2)
    third = train(settings(folder=tmp_path, resume=True))
    kept = Kept(steps=first.steps + second.steps + third.steps)
    assert kept.losses() == whole.losses()
    assert second.notes[-1] == f"stopped in epoch 0 after step 4; go on from {tmp_path} with resume"
    assert third.judged() == whole.judged()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stopped_at_every_step(kind: str, tmp_path: Path) -> None:
    whole = train(settings(**KINDS[kind]))
    for stop_at in range(1, whole.evaluations[-1].update):
        again = resumed(tmp_path / str(stop_at), stop_at, settings, **KINDS[kind])
        assert (again.losses(), again.judged()) == (whole.losses(), whole.judged()), stop_at


@pytest.mark.slow
def test_workers_change_nothing(tmp_path: Path, textures: Path) -> None:
    asked = {"data": str(textures), "size": 16, "batch": 16}
    whole = train(settings(**asked))
    again = resumed(tmp_path, 5, settings, workers=2, **asked)
    assert again.losses() == whole.losses()
    assert again.judged() == whole.judged()


def test_a_folder_of_pictures(tmp_path: Path, textures: Path) -> None:
    asked = {"data": str(textures), "size": 16, "batch": 16, "epochs": 2}
    whole = train(settings(**asked))
    assert resumed(tmp_path, 7, settings, **asked).losses() == whole.losses()


def test_checkpoints_between_epochs(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, save_every=3, max_steps=11))
    last = torch.load(tmp_path / "last.pt", weights_only=True)
    previous = torch.load(tmp_path / "previous.pt", weights_only=True)
    assert (last["place"]["update"], previous["place"]["update"]) == (11, 9)


def test_weights_keep_their_format_in_the_file(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, max_steps=1))
    weights = torch.load(tmp_path / "last.pt", weights_only=True)["training"]["model"]
    assert weights["4.weight"].stride() == (54, 1, 18, 6)


def test_more_epochs_go_on_from_the_end(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))
    more = train(settings(folder=tmp_path, epochs=2, resume=True))
    assert [each.update for each in more.steps] == [5, 6, 7, 8]


def test_the_end_of_a_run_has_nothing_to_resume(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))
    kept = train(settings(folder=tmp_path, epochs=1, resume=True))
    assert kept.steps == []
    assert "already done; raise epochs to go on" in kept.notes
    assert "4 steps, 1 epoch" in kept.notes
    assert "images/s" not in "".join(kept.notes)
    train(settings(folder=tmp_path / "short", max_steps=2))
    assert (
        "already done; raise max_steps to go on"
        in train(settings(folder=tmp_path / "short", max_steps=2, resume=True)).notes
    )


def test_resume_without_a_checkpoint_begins(tmp_path: Path) -> None:
    assert train(settings(folder=tmp_path, resume=True)).losses() == train(settings()).losses()


def test_from_a_file_into_another_folder(tmp_path: Path) -> None:
    whole = train(settings())
    train(settings(folder=tmp_path / "a"), stop_at=6)
    second = train(settings(folder=tmp_path / "b", resume=tmp_path / "a" / "last.pt"))
    assert second.losses() == {step: found for step, found in whole.losses().items() if step > 6}
    assert (tmp_path / "b" / "last.pt").exists()


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    whole = train(settings())
    train(settings(folder=tmp_path, save_every=2), stop_at=7)
    (tmp_path / "last.pt").write_bytes((tmp_path / "last.pt").read_bytes()[:-100])
    again = train(settings(folder=tmp_path, resume=True))
    assert f"going on from {tmp_path / 'previous.pt'}" in again.notes[0]
    assert again.losses() == {step: found for step, found in whole.losses().items() if step > 6}


def test_averaging_can_begin_at_a_checkpoint(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))
    assert train(settings(folder=tmp_path, ema=0.9, epochs=2, resume=True)).evaluations[0].averaged


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "holds the checkpoints of an earlier run; go on from them with resume, or name another folder"),
        ({"resume": True, "seed": 1}, "middle of epoch 0 of a run with seed 0, now 1; go on with the same data"),
        ({"resume": True, "batch": 16}, "images per step 8, now 16"),
        ({"resume": True, "samples": 64}, "images 32, now 64"),
        ({"resume": True, "classes": 5}, r"not of this model and optimizer: .*8\.weight.*; it had 3 classes, now 5"),
        ({"resume": True, "optimizer": "adamw"}, "was written with sgd, now adamw; give optimizer sgd"),
        ({"resume": True, "arch": "other", "classes": 5}, "; it was of tiny; give arch tiny; it had 3"),
        ({"resume": "gone.pt"}, "there is no checkpoint gone.pt"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_resumed(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    train(settings(folder=tmp_path, arch="tiny"), stop_at=2)
    before = (tmp_path / "last.pt").read_bytes()
    changes = {"arch": "tiny", **changes}
    if isinstance(changes.get("resume"), str):
        changes = {"resume": Path(changes["resume"]), "folder": tmp_path / "new"}
    with pytest.raises(CheckpointError, match=sentence):
        train(settings(**{"folder": tmp_path, **changes}))
    assert (tmp_path / "last.pt").read_bytes() == before


def test_from_a_file_leaves_another_runs_folder_alone(tmp_path: Path) -> None:
    train(settings(folder=tmp_path / "a"), stop_at=6)
    train(settings(folder=tmp_path / "b"), stop_at=3)
    files = {path: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    with pytest.raises(CheckpointError, match="b holds the checkpoints of an earlier run"):
        train(settings(folder=tmp_path / "b", resume=tmp_path / "a" / "last.pt"))
    judged = train(settings(folder=tmp_path / "b", resume=tmp_path / "a" / "last.pt", evaluate_only=True))
    assert [each.update for each in judged.evaluations] == [6]
    assert {path: path.read_bytes() for path in (tmp_path / "b").iterdir()} == files


def test_an_earlier_checkpoint_of_the_folder_takes_the_run_back(tmp_path: Path) -> None:
    whole = train(settings())
    train(settings(folder=tmp_path))
    again = train(settings(folder=tmp_path, resume=tmp_path / "previous.pt"))
    assert again.losses() == {step: found for step, found in whole.losses().items() if step > 8}


def test_torchrun_restarts_its_own_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(settings())
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a job")
    train(settings(folder=tmp_path), stop_at=5)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = train(settings(folder=tmp_path), stop_at=2)
    assert again.losses() == {step: whole.losses()[step] for step in (6, 7)}
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another job")
    with pytest.raises(CheckpointError, match="holds the checkpoints of an earlier run"):
        train(settings(folder=tmp_path))


def test_evaluation_alone(tmp_path: Path) -> None:
    whole = train(settings(folder=tmp_path, epochs=1))
    before = (tmp_path / "last.pt").read_bytes()
    alone = train(settings(folder=tmp_path, resume=True, evaluate_only=True))
    assert [each.epoch for each in alone.evaluations] == [0]
    assert [(each.loss, each.top1) for each in alone.evaluations] == list(whole.judged().values())
    assert (alone.steps, (tmp_path / "last.pt").read_bytes()) == ([], before)
    assert len(alone.notes) == 3
    assert alone.notes[-1] == "3 images of 3 classes to evaluate on"


def test_with_larger_batches_from_an_epoch_on_the_rate_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = train(settings(lr=1.0))
    train(settings(lr=1.0, folder=tmp_path, epochs=3, max_steps=4))
    again = train(settings(lr=1.0, folder=tmp_path, batch=16, resume=True))
    assert [(each.epoch, each.step) for each in again.steps] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    rates = {(each.epoch, each.step): each.lr for each in whole.steps}
    assert [each.lr for each in again.steps] == pytest.approx([rates[at] for at in ((1, 1), (1, 3), (2, 1), (2, 3))])


def test_an_evaluation_alone_writes_nothing(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, save_every=2), stop_at=7)
    (tmp_path / ".last.pt.tmp").write_bytes(b"of a run that is still at it")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for source in (True, tmp_path / "previous.pt"):
        train(settings(folder=tmp_path, resume=source, evaluate_only=True))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_evaluation_of_a_folder_without_a_checkpoint_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(CheckpointError, match=f"no checkpoint in {folder}"):
        train(settings(folder=folder, resume=True, evaluate_only=True))
    assert not folder.exists()
    with pytest.raises(CheckpointError, match=r"is a folder; give a checkpoint in it, such as .*last\.pt"):
        train(settings(resume=tmp_path, evaluate_only=True))


def test_evaluation_is_of_the_average_where_there_is_one(tmp_path: Path) -> None:
    whole = train(settings(folder=tmp_path, epochs=1, ema=0.9, optimizer="adamw", lr=0.01))
    alone = train(settings(folder=tmp_path, resume=True, evaluate_only=True))
    assert [(each.loss, each.averaged) for each in alone.evaluations] == [(whole.evaluations[0].loss, True)]
    assert len(alone.notes) == 3
    train(settings(folder=tmp_path / "raw", epochs=1))
    raw = train(settings(folder=tmp_path / "raw", resume=True, evaluate_only=True, ema=0.9))
    assert not raw.evaluations[0].averaged


def test_an_evaluation_says_what_is_not_as_it_was(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1, mean=(0.1, 0.2, 0.3)))
    alone = train(settings(folder=tmp_path, resume=True, evaluate_only=True, size=12, lr=0.3))
    assert alone.notes[1] == (
        "not as in the checkpoint: size 10 → 12, mean 0.1,0.2,0.3 → none; give every setting again that shall stay"
    )


def test_an_evaluation_can_be_interrupted(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))

    class Interrupting(Kept):
        def advance(self, stage: str, done: int, total: int) -> None:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            nhwc.train(tiny, settings(folder=tmp_path, resume=True, evaluate_only=True), sinks=[Interrupting()])
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_that_goes_on_says_what_is_not_as_it_was(tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1))
    again = train(settings(folder=tmp_path, epochs=2, lr=0.3, amp="bf16", print_every=2, resume=True))
    assert again.notes[1] == (
        "not as in the checkpoint: epochs 1 → 2, amp none → bf16, lr 0.05 → 0.3; give every setting again that shall "
        "stay"
    )
    same = train(settings(folder=tmp_path, epochs=2, lr=0.3, amp="bf16", resume=True))
    assert not [note for note in same.notes if "checkpoint" in note]


def test_a_checkpoint_knows_its_model_and_its_classes(tmp_path: Path, textures: Path) -> None:
    asked = settings(data=str(textures), size=16, batch=16, max_steps=1, arch="tiny", folder=tmp_path / "run")
    train(asked)
    state = torch.load(tmp_path / "run" / "last.pt", weights_only=True)
    start = json.loads((tmp_path / "run" / "log.jsonl").read_text().partition("\n")[0])
    for found in (state, start):
        assert (found["settings"]["arch"], found["classes"]) == ("tiny", ["brick", "grass", "gravel"])
    shutil.copytree(textures, tmp_path / "data")
    for part in ("train", "val"):
        (tmp_path / "data" / part / "grass").rename(tmp_path / "data" / part / "fern")
    said = train(replace(asked, data=str(tmp_path / "data"), resume=True)).notes
    assert "class 1 is fern, in the checkpoint it was grass: compare the data" in said


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weight_decay_and_momentum_are_those_asked_for_now(optimizer: str, tmp_path: Path) -> None:
    train(settings(folder=tmp_path, epochs=1, optimizer=optimizer))
    train(settings(folder=tmp_path, epochs=2, optimizer=optimizer, weight_decay=0.25, momentum=0.5, resume=True))
    (group,) = torch.load(tmp_path / "last.pt", weights_only=True)["training"]["optimizer"]["param_groups"]
    assert group["weight_decay"] == 0.25
    assert group.get("momentum", 0.5) == 0.5
