"""Run a model once to learn from it, and leave no trace."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from nhwc.conversion.following import Follower


def rehearse(model: nn.Module, example: object, follower: Follower, *, training: bool) -> None:
    """Call ``model(*example)`` under ``follower``, with the same random numbers each time.

    Training flags, buffers, random state and the example itself are afterwards as before. Compiled parts run eagerly,
    so that the follower sees into them.
    """
    arguments: Any = tree_map(_copy, example)
    with _unchanged(model), torch.compiler.set_stance("force_eager"):
        model.train(training)
        torch.manual_seed(0)
        with torch.set_grad_enabled(training), follower:
            follower.ends_with(model(*arguments))
    del arguments
    if follower.holds_images():  # a reference cycle may be all that keeps them, and collecting takes its time
        gc.collect()
    follower.kept()


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    devices = {tensor.device for tensor in model.parameters() if tensor.is_cuda}
    try:
        with torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices)):
            yield
    finally:
        for module, flag in modes:
            module.training = flag
        for module, name, buffer, value in buffers:
            module._buffers[name] = buffer
            if buffer is not None and value is not None and not torch.equal(buffer, value):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(value)


def _copy(value: object) -> object:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
