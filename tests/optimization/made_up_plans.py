"""A model with a branch, and plans for it that tests write by hand."""

from __future__ import annotations

import torch
from torch import nn

from nhwc.model import Environment
from nhwc.plan import FormatTimes, Move, Placement, Plan, PlanInput, Predicted, tree_digest

ENVIRONMENT = Environment("2.14.1", "3.11.0", "cpu", "a processor", 2, "0.1.0")


class Branching(nn.Module):
    """Two convolutions read one tensor; untraceable keeps symbolic tracing out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.left = nn.Conv2d(8, 8, 3, padding=1)
        self.right = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 4, 3)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        if x.sum().item() == float("inf"):  # depends on data: no tracer follows it
            return x
        x = self.stem(x)
        x = self.left(x) + self.right(x)
        return self.head(x if scale is None else x * scale)


def plan(
    model: nn.Module,
    formats: dict[str, str],
    moves: list[tuple[str, str, str, int]],
    *,
    shape: tuple[int, ...] = (2, 3, 8, 8),
    training: bool = False,
    gain: float = 1.25,
) -> Plan:
    """formats: module → format. moves: (where, module, format, tensor)."""
    return Plan(
        "Branching", ENVIRONMENT, training, "", (PlanInput("input 0", shape, "float32", "cpu"),), (),
        tree_digest(model.named_modules()),
        tuple(Placement(path, "Conv2d", each, 1, FormatTimes(1.0, 1.0), False, "") for path, each in formats.items()),
        tuple(Move(where, path, each, 4096, 0.1, 1, tensor) for where, path, each, tensor in moves),
        (), Predicted(10.0, 10.0, 10.0 / gain),
    )  # fmt: skip


def mixed(model: nn.Module, **options: object) -> Plan:
    """Stem and head contiguous, both branches in channels last, which share the conversion of what they read."""
    formats = {"stem": "contiguous", "left": "channels_last", "right": "channels_last", "head": "contiguous"}
    moves = [
        ("before", "left", "channels_last", 1),
        ("before", "right", "channels_last", 1),
        ("before", "head", "contiguous", 2),
    ]
    return plan(model, formats, moves, **options)  # type: ignore[arg-type]
