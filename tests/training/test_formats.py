"""Contiguous and channels last learn the same, on photographs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from training.runs import certain, settings, train

import nhwc
from nhwc.training import TrainReport

pytestmark = pytest.mark.usefixtures("few_threads")


def smooth(classes: int, channels: int = 3) -> nn.Module:
    """Without a bend, on whose two sides a rounding error could put the formats."""
    model = certain(classes, channels)
    model[2] = model[5] = nn.SiLU()
    return model


def faces_model(classes: int) -> nn.Module:
    return smooth(classes, channels=1)


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_hundred_steps_on_faces_give_the_same_losses_and_accuracy(faces: Path, kernels: bool) -> None:
    asked = {"data": str(faces), "size": None, "batch": 16, "epochs": 20, "lr": 0.02}
    plain = train(settings(channels_last="false", **asked), faces_model)
    last = train(settings(channels_last="true", kernels=kernels, **asked), faces_model)
    assert len(plain.steps) == len(last.steps) == 200
    there, here = (torch.tensor([each.loss for each in kept.steps]) for kept in (plain, last))
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-4)
    assert plain.steps[-1].average_loss < 0.8 * plain.steps[0].loss, "it learned nothing"
    assert abs(plain.evaluations[-1].top1 - last.evaluations[-1].top1) <= 2.5  # one picture of 40


@pytest.mark.slow
def test_two_hundred_steps_on_textures_give_the_same_losses_and_accuracy(textures: Path) -> None:
    asked = {"data": str(textures), "size": 32, "batch": 12, "epochs": 25, "lr": 0.02}
    plain = train(settings(channels_last="false", **asked), smooth)
    last = train(settings(channels_last="true", **asked), smooth)
    assert len(plain.steps) == 200
    there, here = (torch.tensor([each.loss for each in kept.steps]) for kept in (plain, last))
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-4)
    assert abs(plain.evaluations[-1].top1 - last.evaluations[-1].top1) <= 2.5  # one picture of 48


@pytest.mark.slow
def test_a_resnet_parts_from_itself_no_sooner_than_for_a_change_in_the_last_bit(textures: Path) -> None:
    # Batch norm over twelve values multiplies rounding errors at every step, whatever the format.
    asked = {"data": str(textures), "size": 32, "batch": 12, "epochs": 1, "lr": 0.002}

    def model(classes: int, change: float = 0.0) -> nn.Module:
        from torchvision.models import resnet18

        made = resnet18(num_classes=classes)
        with torch.no_grad():
            for each in made.parameters():
                each.mul_(1 + change * torch.randn_like(each))
        return made

    runs = [
        train(settings(channels_last="false", **asked), model),
        train(settings(channels_last="false", **asked), lambda classes: model(classes, 1e-6)),
        train(settings(channels_last="true", **asked), model),
    ]
    plain, changed, last = (torch.tensor([each.loss for each in kept.steps]) for kept in runs)
    torch.testing.assert_close(last[:2], plain[:2], rtol=1e-4, atol=1e-5)
    assert float((last - plain).abs().max()) < 5 * float((changed - plain).abs().max())


def report_of(**changes: object) -> TrainReport:
    return nhwc.train(certain, settings(max_steps=1, **changes))


@pytest.mark.parametrize(
    ("asked", "format_", "strides"),
    [
        ("auto", "channels_last", (54, 1, 18, 6)),
        ("true", "channels_last", (54, 1, 18, 6)),
        ("false", "contiguous", (54, 9, 3, 1)),
    ],
)
def test_weights_and_batches_have_the_format_asked_for(asked: str, format_: str, strides: tuple[int, ...]) -> None:
    seen: list[str] = []

    def model(classes: int) -> nn.Module:
        made = certain(classes)
        made.register_forward_pre_hook(lambda _module, images: seen.append(nhwc.layout_of(images[0]).kind.value))
        return made

    report = nhwc.train(model, settings(max_steps=1, channels_last=asked))
    assert set(seen) == {format_}
    assert (report.memory_format, report.model[4].weight.stride()) == (format_, strides)
    assert report.model[4].weight.grad is None


def test_auto_says_what_it_did_and_why() -> None:
    said = train(settings(max_steps=1)).notes[0]
    assert said == (
        "weights and batches in channels last (auto: 2 two-dimensional convolutions; nothing was measured), "
        "nhwc's kernels on"
    )
    linear = train(settings(max_steps=1), lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(300, classes)))
    assert linear.notes[0].startswith("weights and batches in contiguous (auto: the model has no two-dim")


@pytest.mark.parametrize(
    ("changes", "on"),
    [({}, True), ({"kernels": False}, False), ({"channels_last": "false"}, False)],
    ids=str,
)
def test_kernels_are_on_in_channels_last_and_off_again(changes: dict[str, object], on: bool) -> None:
    seen: list[bool] = []

    def model(classes: int) -> nn.Module:
        made = certain(classes)
        made.register_forward_hook(lambda *_: seen.append("cat" in nhwc.kernels.active()))
        return made

    report = nhwc.train(model, settings(max_steps=1, **changes))
    assert set(seen) == {on}
    assert bool(report.kernels) == on
    assert nhwc.kernels.active() == ()


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    assert train(settings()).losses() == train(settings()).losses()
    assert train(settings(seed=1)).losses() != train(settings()).losses()


def test_the_callers_random_numbers_and_warnings_are_not_the_runs() -> None:
    import warnings

    before = list(warnings.filters)
    train(settings(max_steps=1))
    assert warnings.filters == before
