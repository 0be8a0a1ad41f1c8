"""Prove by a run of the example that turned images reach their Linear layers and nothing else, and that these answer
as before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

import torch
from torch import nn

from nhwc.conversion.doors import bring
from nhwc.conversion.following import Follower
from nhwc.conversion.rehearsal import rehearse
from nhwc.conversion.survey import Answers, Flattened, Survey, linear_weights, listen, on_input, on_output
from nhwc.strides import channels_last_for, holds

#: How far the answers of a Linear may differ from those before, in their norm: sums run in another order, while wrong
#: columns are off by about 1.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_COARSE = 5e-2


def doubt(
    model: nn.Module, example: tuple[Any, ...], flattened: Flattened, before: Survey, *, training: bool
) -> str | None:
    """Why the Linear layers of ``flattened`` may not stay changed; None where the run proves them right.

    before: what the model did unchanged. Answers are compared in evaluation mode alone: dropout forbids it in training.
    """
    steps = before.steps[training]
    if isinstance(steps, Exception):
        return f"the model raises without it too ({steps})"
    modules = dict(model.named_modules())
    linears = {path: modules[path] for path in flattened.linears}
    follower = Follower(linear_weights(modules), turned=True)
    answers: Answers = {}
    arrived: list[bool] = []
    with ExitStack() as hooks:
        listen(linears, answers, hooks)
        _watch_site(modules[flattened.site], flattened, follower, arrived, hooks)
        hooks.callback(on_output(modules[flattened.owner], follower.leaves))
        try:
            rehearse(model, bring(example, "auto"), follower, training=training)
        except Exception as error:  # noqa: BLE001 whatever the model raises is a reason
            return f"the model raises ({error})"
    reasons = [f"its image {reason}" for reason in follower.strays.values()]
    reasons += [f"the weight of {path} {follower.others[path]}" for path in linears if path in follower.others]
    if not arrived:
        reasons.append("no such image came")
    elif not all(arrived):
        reasons.append("its image comes in contiguous format, in which flattening is free")
    elif not reasons and set(follower.reached) != set(linears):
        reasons.append("its image does not reach every Linear that it reached before")
    if not reasons and follower.steps != steps:
        reasons.append("the model computes other steps when the shape of its image differs, or at random")
    if not (reasons or training or all(_agree(answers[path], before.answers[path]) for path in linears)):
        reasons.append("the answers of the Linear behind it differ from one run to the next, so nothing can be proven")
    return "; ".join(reasons) or None


def _watch_site(
    site: nn.Module, flattened: Flattened, follower: Follower, arrived: list[bool], hooks: ExitStack
) -> None:
    image = flattened.shape[1:]
    turned = (prod(image), *(1 for _ in image[1:]))

    def before(tensor: object) -> None:
        if isinstance(tensor, torch.Tensor) and tuple(tensor.shape[1:]) == image:
            arrived.append(holds(tensor.shape, tensor.stride(), channels_last_for(tensor.dim())))

    def after(tensor: object) -> None:
        if isinstance(tensor, torch.Tensor) and tuple(tensor.shape[1:]) == turned:
            follower.see(flattened.site, tensor, (tensor.shape[0], *image))

    watch = on_input if isinstance(site, nn.Flatten) else on_output
    hooks.callback(watch(site, before, first=True))
    hooks.callback(watch(site, after))


def _agree(have: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> bool:
    def close(a: torch.Tensor, b: torch.Tensor) -> bool:
        tolerance = _TOLERANCE.get(b.dtype, _COARSE)
        return a.shape == b.shape and bool((a - b).double().norm() <= tolerance * b.double().norm())

    return len(have) == len(want) and all(map(close, have, want))
