"""One plain step of a model, and how it is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from nhwc.errors import ModelError


@dataclass(frozen=True)
class Options:
    """How a step is recorded.

    train: put a model in training mode and run backward; otherwise evaluation mode under ``torch.no_grad``.
    loss: model output → scalar tensor; without one the backward pass starts from a gradient of ones in the
        output's own format (the sum of a dictionary's scalar losses for models that return losses).
    amp: dtype of ``torch.autocast``, None for none.
    static: run on fake tensors.
    inner, libraries: look inside kernels (profiler) and inside libraries (oneDNN verbose).
    process_group: compare the layouts of all ranks (every rank must record); a DistributedDataParallel model
        compares by itself.
    kernels_on: answers the names of the kernels of ours that are switched on at the moment.
    keep_error: return the trace up to an exception of the step instead of raising ModelError.
    """

    train: bool = False
    loss: Callable[[Any], torch.Tensor] | None = None
    amp: torch.dtype | None = None
    static: bool = False
    inner: bool = True
    libraries: bool = True
    process_group: Any | None = None
    kernels_on: Callable[[], tuple[str, ...]] = tuple
    keep_error: bool = False
    target: str = ""


def run_model(
    model: nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    state: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """One step of a model as ``options`` say; ``state`` stands in for its parameters and buffers during the call."""
    model.train(options.train)
    autocast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if options.amp is not None:
        autocast = torch.autocast(device_of(model, inputs).type, dtype=options.amp)
    with torch.set_grad_enabled(options.train), autocast:
        if state is None:
            output = model(*inputs, **kwargs)
        else:
            output = torch.func.functional_call(model, dict(state), tuple(inputs), dict(kwargs), tie_weights=False)
        loss = options.loss(output) if options.loss is not None and options.train else None
    if options.train:
        _backward(output if loss is None else loss)


def _backward(output: Any) -> None:
    outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not outputs:
        raise ModelError("no output of the model requires a gradient; leave train out, or pass a loss")
    torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in a nest of containers and of objects with dataclass fields."""
    leaves = tree_leaves(tree)
    found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for leaf in leaves:  # model outputs that are objects with fields, as some libraries return
        if not isinstance(leaf, torch.Tensor) and hasattr(leaf, "__dataclass_fields__"):
            found += tensors_in([getattr(leaf, name) for name in leaf.__dataclass_fields__])
    return found


def device_of(model: nn.Module | None, inputs: Any) -> torch.device:
    """Where the model's parameters live, else its inputs, else the CPU."""
    if model is not None:
        for tensor in [*model.parameters(), *model.buffers()]:
            return tensor.device
    for tensor in tensors_in(inputs):
        return tensor.device
    return torch.device("cpu")


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
