"""What a model and its example must be before any of it is captured. Each refusal is one sentence with the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.conversion.targets import inside_compiled
from nhwc.errors import EngineError


def suitable(model: object, engine: type[torch.nn.Module]) -> torch.nn.Module:
    """The model to capture: itself, or the one inside a ``torch.compile`` wrapper. engine: the type of engines.

    Raises EngineError for what is no module, for TorchScript, for an engine, for a part in training mode, and for a
    model whose weights are not on the CPU.
    """
    if isinstance(model, Mapping):
        raise EngineError(
            "got a state dict where a model is expected; load it into the model first (model.load_state_dict(state)), "
            "and give the model"
        )
    if isinstance(model, torch.export.ExportedProgram):
        raise EngineError("got an ExportedProgram where a model is expected; give the model that it was exported from")
    if not isinstance(model, torch.nn.Module):
        raise EngineError(
            f"an engine is made of a torch.nn.Module, not of a {type(model).__name__}; wrap it in a module"
        )
    model = inside_compiled(model)
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise EngineError(
                f"{_named(path)} is a TorchScript module, which torch.export does not take; give the module that it "
                "was scripted or traced from"
            )
        if isinstance(module, engine):
            raise EngineError(
                f"{_named(path)} is an engine already; build one engine of the whole model, from the model that this "
                "one was built from"
            )
    require_evaluation(model)
    _require_cpu(model)
    return model


def require_evaluation(model: torch.nn.Module) -> None:
    """Raise EngineError for a model, or a part of one, that is in training mode."""
    training = [name or "the model itself" for name, module in model.named_modules() if module.training]
    if training:
        some = ", ".join(training[:3]) + (", …" if len(training) > 3 else "")
        raise EngineError(
            f"the engine runs models in evaluation mode, and {some} is in training mode; call eval() first"
        )


def require_example(args: Sequence[Any], kwargs: object) -> None:
    """Raise EngineError for example arguments without a tensor, or with one that is not plain memory of the CPU."""
    if not isinstance(kwargs, Mapping):
        raise EngineError(f"kwargs={kwargs!r}: give keyword arguments by name, such as kwargs={{'mask': mask}}")
    if not args and not kwargs:
        raise EngineError("give example inputs: nhwc.engine(model, *inputs); their shapes are what it is built for")
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
    tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
    if not tensors:
        raise EngineError(
            f"the example inputs, {_short(args, kwargs)}, hold no tensor; give tensors in the shapes that the "
            "engine is to be built for, such as torch.randn(1, 3, 224, 224)"
        )
    for each in tensors:
        if each.device.type != "cpu":
            raise EngineError(
                f"the engine runs on the CPU, and an example input is on {each.device}; move it with .cpu()"
            )


def require_further(shapes: object) -> tuple[tuple[Any, ...], ...]:
    """``shapes`` as tuples of arguments. Raises EngineError for anything else, such as bare tensors or sizes."""
    entries = shapes if isinstance(shapes, (list, tuple)) else [shapes]
    for each in entries:
        is_arguments = isinstance(each, (list, tuple))
        if not is_arguments or not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(each)):
            found = f"a tensor of shape {tuple(each.shape)}" if isinstance(each, torch.Tensor) else repr(each)
            raise EngineError(
                f"shapes: got {found} where example arguments are expected; give a tuple of them for every further "
                "shape, such as shapes=[(x_small,), (x_large,)]"
            )
    return tuple(map(tuple, entries))


def _require_cpu(model: torch.nn.Module) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type == "meta":
            raise EngineError(
                f"{name} is on the meta device, without values; make the model on the CPU and load its weights"
            )
        if tensor.device.type != "cpu":
            raise EngineError(f"the engine runs on the CPU, and {name} is on {tensor.device}; move it: model.cpu()")


def _named(path: str) -> str:
    return f"part {path} of the model" if path else "the model"


def _short(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    text = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return text if len(text) <= 80 else f"{text[:77]}..."
