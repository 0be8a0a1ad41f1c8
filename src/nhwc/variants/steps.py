"""The step of a variant: a forward pass, or a whole training step with fresh gradients and the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from nhwc.errors import ModelError, VariantError
from nhwc.recorder.run import tensors_in
from nhwc.variants.setup import Setup

Loss = Callable[[Any], torch.Tensor]
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def inference_step(setup: Setup) -> Callable[[], Any]:
    """A forward pass in evaluation mode without gradients; returns the output."""
    setup.model.eval()

    def step() -> Any:
        with ExitStack() as stack:
            for context in (*setup.during_step, torch.no_grad):
                stack.enter_context(context())
            return setup.forward()

    return step


def training_step(setup: Setup, loss: Loss | None, make_optimizer: MakeOptimizer | None) -> Callable[[], None]:
    """Fresh gradients, forward, backward, and the step of an optimizer; loss scaling under float16.

    loss: model output → scalar; without one backward starts from ones. make_optimizer: parameters → optimizer; without
    one SGD with momentum, at a learning rate of 0: it does all its work, and the weights stay those of every variant.
    """
    if setup.only_inference:
        raise VariantError(setup.only_inference)
    setup.model.train()
    told = None if loss is None else guarded(loss)
    trainable = [parameter for parameter in setup.model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ModelError("no parameter of the model requires a gradient: there is nothing to train")
    optimizer = (make_optimizer or _sgd)(trainable)
    scaler = torch.amp.GradScaler(setup.device.type, enabled=setup.dtype is torch.float16)

    def step() -> None:
        with ExitStack() as stack:
            for context in setup.during_step:
                stack.enter_context(context())
            optimizer.zero_grad(set_to_none=True)
            with torch.enable_grad():
                _backward(setup.forward(told), scaler)
            scaler.step(optimizer)
            scaler.update()

    return step


def guarded(loss: Loss) -> Loss:
    """``loss``, whose exceptions are not held against the model."""

    def called(output: Any) -> torch.Tensor:
        try:
            return loss(output)
        except Exception as error:
            raise ModelError(
                f"the loss raised {type(error).__name__}: {' '.join(str(error).split())}; it is called with the "
                "model's output alone: bring targets along in a closure"
            ) from error

    return called


def _sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.0, momentum=0.9)


def _backward(value: Any, scaler: torch.amp.GradScaler) -> None:
    outputs = [tensor for tensor in tensors_in(value) if tensor.requires_grad]
    if not outputs:
        raise ModelError("no output of the model requires a gradient; measure inference, or pass a loss")
    torch.autograd.backward(outputs, [scaler.scale(torch.ones_like(tensor)) for tensor in outputs])
