"""``nhwc train``: what the words of a command line become, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import nhwc
from nhwc.cli import targets, train_display, zoo
from nhwc.cli.main import app
from nhwc.cli.train import option_names
from nhwc.errors import TargetError

ROOT = Path(__file__).resolve().parents[2]
#: A process that a test in the background starts ignores Ctrl-C, one of a shell does not.
LISTENS = f"import signal, runpy, sys; signal.signal({int(signal.SIGINT)}, signal.default_int_handler)"
NET = """
import time

from torch import nn

def build(num_classes):
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(convolution, nn.Linear(4, num_classes))

def fixed():
    return build(3)

def any_options(**options):
    assert not options
    return build(3)

def needs(width, num_classes):
    return build(num_classes)

def slow(num_classes):
    made = build(num_classes)
    made.register_forward_hook(lambda *_: time.sleep(0.6))
    return made

def other_name(n_classes):
    return build(n_classes)
"""
SMALL = """--arch net.py:build --samples 32 --size 8 --classes 3 --batch 8 --epochs 2 --print-every 2
    --no-tensorboard --measure 0""".split()


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


Invoke = Callable[..., Any]


@pytest.fixture
def invoke(net: Path) -> Invoke:
    return lambda *words: CliRunner().invoke(app, ["train", *words])


@pytest.fixture
def asked(net: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., nhwc.TrainSettings]:
    """What the verb is asked, by the words of a command line."""
    import nhwc.api

    found: list[nhwc.TrainSettings] = []
    monkeypatch.setattr(nhwc.api, "train", lambda _build, settings, sinks: found.append(settings))

    def words(*given: str) -> nhwc.TrainSettings:
        result = CliRunner().invoke(app, ["train", *given])
        assert result.exit_code == 0, result.stderr
        return found.pop()

    return words


def test_the_defaults_are_those_of_the_settings(asked: Callable[..., nhwc.TrainSettings]) -> None:
    assert asked("synthetic", "--arch", "net.py:build") == nhwc.TrainSettings("synthetic", arch="net.py:build")
    assert asked("synthetic") == nhwc.TrainSettings("synthetic", size=224, arch="resnet18")
    assert asked("some.npz") == nhwc.TrainSettings("some.npz", arch="resnet18")


def test_every_setting_has_an_option(asked: Callable[..., nhwc.TrainSettings]) -> None:
    words = """--folder run --epochs 7 --batch 9 --accumulate 2 --workers 3 --size 40 --samples 50 --classes 6
        --val there --no-augment --mean 0.1,0.2,0.3 --std 0.4,0.5,0.6 --steps 8 --channels-last true --kernels
        --measure 7 --amp bf16 --optimizer adamw --lr 0.5 --momentum 0.8 --weight-decay 0.2 --schedule step --warmup 1.5
        --step-epochs 4 --step-factor 0.3 --label-smoothing 0.1 --ema 0.99 --seed 5 --device cuda --save-every 11
        --print-every 12 --resume --evaluate --tensorboard --fsdp --sync-batch-norm"""
    found = asked("data", "--arch", "net.py:build", *words.split())
    assert found == nhwc.TrainSettings(
        data="data",
        arch="net.py:build",
        folder=Path("run"),
        epochs=7,
        batch=9,
        accumulate=2,
        workers=3,
        size=40,
        samples=50,
        classes=6,
        evaluate="there",
        augment=False,
        mean=(0.1, 0.2, 0.3),
        max_steps=8,
        std=(0.4, 0.5, 0.6),
        channels_last="true",
        measure_s=7.0,
        kernels=True,
        amp="bf16",
        optimizer="adamw",
        lr=0.5,
        momentum=0.8,
        weight_decay=0.2,
        schedule="step",
        warmup_epochs=1.5,
        decay_every=4,
        decay=0.3,
        label_smoothing=0.1,
        ema=0.99,
        seed=5,
        device="cuda",
        save_every=11,
        print_every=12,
        resume=True,
        evaluate_only=True,
        tensorboard=True,
        fsdp=True,
        sync_batch_norm=True,
    )
    other = asked("data", "--compile", "--no-kernels", "--from", "old.pt")
    assert (other.compile, other.kernels, other.resume) == (True, False, Path("old.pt"))
    usual = nhwc.TrainSettings("data")
    untold = {each.name for each in fields(usual) if getattr(found, each.name) == getattr(usual, each.name)}
    assert untold == {"data", "compile"}


def test_the_size_is_that_of_the_architecture_unless_it_is_given(asked: Callable[..., nhwc.TrainSettings]) -> None:
    assert asked("data", "--arch", "inception_v3").size == 299
    assert asked("data", "--arch", "inception_v3", "--size", "96").size == 96


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("synthetic --format xml", "--format 'xml' is unknown; the formats are text, json"),
        ("synthetic --folder x --resume --from y", "--resume and --from both say where to go on from"),
        ("synthetic --mean a,b", "--mean 'a,b' is not numbers"),
        ("synthetic --arch resnet81", "no model named 'resnet81' .* did you mean resnet18"),
        ("synthetic --arch fcn_resnet50", "fcn_resnet50 is no classifier of images"),
        ("synthetic --arch gone.py:build", "no file gone.py"),
        ("synthetic --amp fp8", "--amp 'fp8' is unknown; use bf16 or fp16"),
        ("nowhere", "DATA 'nowhere' is neither a folder"),
        ("synthetic --kernels --compile", "kernels step aside under torch.compile"),
        ("synthetic --resume", "--resume and --save-every need a folder with checkpoints; name one as --folder"),
        ("synthetic --evaluate", "--evaluate needs a checkpoint: --folder DIR --resume names its last, or --from FILE"),
        ("synthetic --folder x --resume --evaluate --size 8 --arch net.py:build", "no checkpoint in x"),
        ("synthetic --warmup 9 --epochs 8", "--warmup is 9.0, more than --epochs, 8"),
        ("synthetic --steps 0", "--steps is 0; it must be a whole number of at least 1"),
        ("synthetic --mean 123,116,103", "--mean is .*of images scaled to 0 to 1"),
        ("synthetic --samples 3 --arch net.py:build", "fewer than one batch of 32; give --batch 3 or less"),
        (
            "synthetic --tensorboard --arch net.py:build",
            "--tensorboard needs a folder to write to; name one as --folder",
        ),
        ("synthetic --arch net.py:other_name", "needs n_classes; name the argument for it num_classes, or wrap it"),
        ("synthetic --arch net.py:needs --classes 3", "needs width; wrap it in a function"),
        ("synthetic --device nothing --arch net.py:build", "device 'nothing' cannot be used"),
        ("", "missing argument"),
    ],
)
def test_what_makes_no_sense_ends_in_one_sentence(words: str, sentence: str, invoke: Invoke) -> None:
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert re.search(f"nhwc: .*{sentence}", result.stderr.replace("\n", "") or "", re.IGNORECASE), result.stderr
    assert result.stdout == ""


def test_lines_in_a_pipe(invoke: Invoke) -> None:
    result = invoke("synthetic", *SMALL)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert [line for line in lines if line.startswith("epoch 0 [2/4]  time ")]
    assert sum(line.startswith("evaluation after epoch") for line in lines) == 2
    assert lines[-3].startswith("8 steps, 2 epochs; ")
    assert lines[-2].startswith("time of the steps: data ")


def test_lines_of_json(invoke: Invoke) -> None:
    result = invoke("synthetic", *SMALL, "--format", "json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["step"] for each in found if each["kind"] == "step"] == [2, 4, 2, 4]


def test_a_run_goes_on(invoke: Invoke, net: Path) -> None:
    assert invoke("synthetic", *SMALL, "--folder", "run", "--steps", "3").exit_code == 0
    refused = invoke("synthetic", *SMALL, "--folder", "run")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "go on from them with --resume" in refused.stderr
    result = invoke("synthetic", *SMALL, "--folder", "run", "--resume")
    assert result.stdout.startswith("going on from run/last.pt\n")
    assert "not as in the checkpoint: --steps 3 → none; give every setting again that shall stay" in result.stdout
    judged = invoke("synthetic", *SMALL, "--folder", "run", "--resume", "--evaluate")
    assert "evaluation after epoch 1: loss" in judged.stdout
    assert "images/s" not in judged.stdout
    other = invoke("synthetic", *SMALL, "--folder", "run", "--resume", "--optimizer", "adamw")
    assert "was written with sgd, now adamw; give --optimizer sgd" in other.stderr
    done = invoke("synthetic", *SMALL, "--folder", "run", "--resume")
    assert "already done; raise --epochs to go on\n" in done.stdout


def test_a_checkpoint_of_another_architecture_names_it(invoke: Invoke, net: Path) -> None:
    assert invoke("synthetic", *SMALL, "--folder", "run", "--steps", "1").exit_code == 0
    words = [*SMALL, "--arch", "squeezenet1_1", "--size", "32"]
    result = invoke("synthetic", *words, "--folder", "run", "--from", "run/last.pt", "--evaluate")
    assert result.exit_code == 2
    assert "; it was of net.py:build; give --arch net.py:build" in " ".join(result.stderr.split())


def test_every_setting_is_called_as_its_option() -> None:
    names = option_names()
    assert {each.name for each in fields(nhwc.TrainSettings)} <= names.keys()
    wanted = {"evaluate": "--val", "evaluate_only": "--evaluate", "decay": "--step-factor", "compile": "--compile"}
    assert {name: names[name] for name in wanted} == wanted


def test_only_the_first_rank_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with train_display.showing("text") as sinks:
        assert sinks == []


def on_a_terminal(words: list[str], folder: Path) -> str:
    """What a terminal of 200 columns gets to see."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nhwc", "train", *words],
        stdout=writer,
        stderr=writer,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(writer)
    seen = b""
    try:
        while part := _read(reader):
            seen += part
        assert process.wait(60) == 0, seen
    finally:
        process.kill()
        os.close(reader)
    return seen.decode()


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.slow
def test_a_live_bar_on_a_terminal(net: Path) -> None:
    seen = on_a_terminal(["synthetic", *SMALL, "--samples", "320"], net)
    assert "\x1b[" in seen
    assert re.search(r"epoch 1 .*\d+/40", seen)
    assert "epoch 0 [2/40]  time " in seen


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_cleanly_with_a_checkpoint(number: int, net: Path) -> None:
    words = ["synthetic", *SMALL, "--epochs", "100000", "--folder", "run", "--print-every", "1", "--workers", "1"]
    program = f"{LISTENS}; sys.argv[0] = 'nhwc'; runpy.run_module('nhwc', run_name='__main__')"
    process = started(["-c", program, "train", *words], net, apart=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 3 "):
                os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
                break
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err == "nhwc: interrupted\n"
    stopped = re.search(r"stopped in epoch (\d+) after step (\d); go on from run with --resume", out)
    assert stopped is not None, out
    place = torch.load(net / "run" / "last.pt", weights_only=True)["place"]
    assert (place["epoch"], place["step"]) == (int(stopped[1]), int(stopped[2]))


@pytest.mark.slow
def test_a_worker_that_is_killed_under_torchrun_costs_no_more_than_the_steps_since_the_checkpoint(net: Path) -> None:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 2"
    words = ["synthetic", *SMALL, "--epochs", "40", "--folder", "run", "--save-every", "1", "--print-every", "1"]
    process = started([*launcher.split(), "-m", "nhwc", "train", *words], net)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("epoch 2 "):
                os.kill(_a_worker_of(process.pid), signal.SIGKILL)
                break
        out, err = process.communicate(timeout=200)
    finally:
        end_with_workers(process)
    assert process.returncode == 0, err
    assert "going on from run/last.pt" in out
    told = [json.loads(line) for line in (net / "run" / "log.jsonl").read_text().splitlines()]
    whole = [each["loss"] for each in told if each["kind"] == "step"]
    assert [each["update"] for each in told if each["kind"] == "step"] == list(range(1, 81))
    assert sum(each["kind"] == "start" for each in told) == 2
    unbroken = CliRunner().invoke(
        app, ["train", "synthetic", *SMALL, *"--epochs 40 --print-every 1 --batch 16".split()]
    )
    assert unbroken.exit_code == 0
    assert whole[-1] == pytest.approx(float(re.findall(r"loss (\S+) ", unbroken.stdout)[-2]), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sign"),
    [
        ("--epochs 100000 --print-every 1", "epoch 2 "),
        ("--arch net.py:slow --samples 3200 --print-every 1000", "200 steps an epoch"),
    ],
    ids=["quick", "slow steps and no line of the log"],
)
def test_an_interrupt_under_torchrun_ends_with_a_checkpoint(words: str, sign: str, net: Path) -> None:
    further = ["synthetic", *SMALL, "--folder", "run", *words.split()]
    launcher = f"{LISTENS}; sys.argv[0] = 'run'; runpy.run_module('torch.distributed.run', run_name='__main__')"
    process = started(
        ["-c", launcher, *"--standalone --nproc-per-node 2 -m nhwc train".split(), *further], net, apart=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(sign):
                time.sleep(3 if "slow" in words else 0)  # into the steps, of which no line tells
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: torchrun and its workers get it
                break
        out, err = process.communicate(timeout=100)
    finally:
        end_with_workers(process)
    stopped = re.search(r"stopped in epoch (\d+) after step (\d); go on from run with --resume", out)
    assert stopped is not None, err
    place = torch.load(net / "run" / "last.pt", weights_only=True)["place"]
    assert (place["epoch"], place["step"]) == (int(stopped[1]), int(stopped[2]))
    assert process.returncode != 0


def started(words: Sequence[str], folder: Path, *, apart: bool = False) -> subprocess.Popen[str]:
    """Python with these words, in ``folder``, one thread; ``apart``: in a group of its own, for signals to it."""
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        start_new_session=apart,
    )


def end_with_workers(torchrun: subprocess.Popen[str]) -> None:
    """End torchrun where it still runs: killed, it would leave its workers behind."""
    if torchrun.poll() is None:
        torchrun.terminate()
        torchrun.wait(60)


def _a_worker_of(parent: int) -> int:
    """The process of rank 1."""
    for _ in range(50):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            if b"RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
        time.sleep(0.1)
    raise AssertionError(f"torchrun has no rank 1 among {children}")


@pytest.mark.parametrize("name", ["fixed", "any_options"])
def test_a_callable_that_takes_no_number_of_classes(name: str, net: Path) -> None:
    found = targets.classifier(f"net.py:{name}")
    assert found.size is None
    assert found.build(7)[-1].out_features == 3  # type: ignore[index]


def test_a_callable_that_takes_it(net: Path) -> None:
    assert targets.classifier("net.py:build").build(7)[-1].out_features == 7  # type: ignore[index]


@pytest.mark.parametrize("name", ["squeezenet1_1", "shufflenet_v2_x0_5", "resnetv2_50"])
def test_known_names_have_as_many_classes_as_the_data(name: str) -> None:
    build, side = zoo.classifier(name)
    assert side == 224
    with torch.no_grad():
        assert build(5).eval()(torch.zeros(1, 3, 224, 224)).shape == (1, 5)


def test_every_torchvision_classifier_is_found_and_nothing_else() -> None:
    from torchvision import models

    for name in models.list_models(module=models):
        assert zoo.classifier(name)[1]
    with pytest.raises(TargetError, match="is no classifier of images"):
        zoo.classifier("fasterrcnn_resnet50_fpn")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_models_with_auxiliary_heads_learn(name: str, invoke: Invoke) -> None:
    result = invoke("synthetic", *f"--arch {name} --samples 8 --classes 3 --batch 4 --epochs 1 --lr 0.01".split())
    assert result.exit_code == 0, result.stderr
    assert isinstance(zoo.classifier(name)[0](3), nn.Module)
