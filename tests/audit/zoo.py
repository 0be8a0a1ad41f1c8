"""torchvision's models with random weights and the smallest inputs that they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchvision import models

NAMES = [name for name in models.list_models() if not name.startswith("quantized_")]

_SIDE = 64
_SIDES = {"inception_v3": 75, "raft_large": 128, "raft_small": 128, "maxvit_t": 224}
_CLIPS = {"mvit_v1_b": (16, 224), "mvit_v2_s": (16, 224), "s3d": (16, 224)}
_SMALL_CLIP = (4, 64)
_DETECTION_OPTIONS = {"min_size": 128, "max_size": 192}


@dataclass(frozen=True)
class Sample:
    """A model and the positional arguments of one step of it."""

    model: nn.Module
    inputs: tuple[Any, ...]


def sample(name: str, *, train: bool = False) -> Sample:
    """The model of that name, and inputs for an evaluation or a training step."""
    builder = models.get_model_builder(name)
    model = builder(**_options(name, builder))
    return Sample(model, _inputs(name, model, builder, train))


def _options(name: str, builder: Callable[..., nn.Module]) -> dict[str, Any]:
    takes = inspect.signature(builder).parameters
    options: dict[str, Any] = {key: None for key in ("weights", "weights_backbone") if key in takes}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False  # torchvision warns that it takes long
    if _is_detection(builder) and not name.startswith("ssd"):
        options |= _DETECTION_OPTIONS
    return options


def _is_detection(builder: Callable[..., nn.Module]) -> bool:
    return ".detection." in builder.__module__


def _inputs(name: str, model: nn.Module, builder: Callable[..., nn.Module], train: bool) -> tuple[Any, ...]:
    batch = 2 if train else 1  # batch norm wants more than one value per channel in training
    family = builder.__module__
    if _is_detection(builder):
        pictures = [torch.rand(3, 128, 160) for _ in range(batch)]
        return (pictures, [_target(name) for _ in pictures]) if train else (pictures,)
    if ".video." in family:
        frames, side = _CLIPS.get(name, _SMALL_CLIP)
        return (torch.randn(batch, 3, frames, side, side),)
    side = _SIDES.get(name) or getattr(model, "image_size", _SIDE)
    if name == "inception_v3" and train:
        side = 299  # the auxiliary head has a kernel of five and wants seventeen pixels
    if ".optical_flow." in family:
        return tuple(torch.randn(batch, 3, side, side) for _ in range(2))
    return (torch.randn(batch, 3, side, side),)


def _target(name: str) -> dict[str, torch.Tensor]:
    target = {"boxes": torch.tensor([[16.0, 16.0, 96.0, 112.0]]), "labels": torch.tensor([1])}
    if name.startswith("maskrcnn"):
        target["masks"] = torch.ones(1, 128, 160, dtype=torch.uint8)
    if name.startswith("keypointrcnn"):
        target["keypoints"] = torch.tensor([[[32.0, 32.0, 1.0]] * 17])
    return target
