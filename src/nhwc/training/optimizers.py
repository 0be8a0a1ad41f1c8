"""The optimizer of a run."""

from __future__ import annotations

import torch
from torch import nn

from nhwc.errors import TrainingError
from nhwc.training.settings import TrainSettings


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """SGD or AdamW for the trainable parameters of ``model``; fused, which is right as long as layouts agree.

    Raises TrainingError for a model without any.
    """
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise TrainingError(
            f"{type(model).__name__} has no parameter to train; set requires_grad on those that shall learn"
        )
    fused = not settings.fsdp and all(each.is_floating_point() for each in parameters)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused)
    return torch.optim.SGD(
        parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=fused
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def apply_settings(optimizer: torch.optim.Optimizer, settings: TrainSettings) -> None:
    """Weight decay and momentum as ``settings`` have them: a state that was loaded brings those of its own run."""
    for group in optimizer.param_groups:
        group["weight_decay"] = settings.weight_decay
        if "momentum" in group:
            group["momentum"] = settings.momentum
