"""Find the images that a model flattens before a Linear, by one run of an example."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn

from nhwc.conversion.doors import bring
from nhwc.conversion.following import Follower, Image
from nhwc.conversion.image_linear import ImageLinear
from nhwc.conversion.plan import is_lazy, model_tensors
from nhwc.conversion.rehearsal import rehearse
from nhwc.errors import ConversionError
from nhwc.strides import CONTIGUOUS, channels_last_for

Answers = dict[str, list[torch.Tensor]]


@dataclass(frozen=True)
class Flattened:
    """An image that is flattened before Linear layers.

    site: the module that hands it out, or the ``nn.Flatten`` that takes it. shape: (N, C, H, W) in the example.
    linears: paths of the layers. owner: the innermost module whose call runs both.
    """

    site: str
    shape: tuple[int, ...]
    linears: tuple[str, ...]
    owner: str


@dataclass
class Survey:
    """What runs of the example showed.

    refused: one sentence each. answers: Linear → its answers, call by call. steps: training flag → what was computed,
    or what the model raised.
    """

    found: list[Flattened] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    answers: Answers = field(default_factory=dict)
    steps: dict[bool, list[str] | Exception] = field(default_factory=dict)


def survey(model: nn.Module, example: tuple[Any, ...]) -> Survey:
    """The flattened images of ``model``, which is run in evaluation and in training mode, and left as it is."""
    for name, tensor in model_tensors(model).items():
        if is_lazy(tensor):
            raise ConversionError(f"{name}: it is not initialized yet; run the model once, then convert it")
    modules = dict(model.named_modules())
    follower = Follower(linear_weights(modules), turned=False)
    called = {""}
    result = Survey()
    with ExitStack() as hooks:
        listen(modules, result.answers, hooks)
        for path, module in modules.items():
            _watch(path, module, follower, called, hooks)
        try:
            rehearse(model, bring(example, CONTIGUOUS), follower, training=False)
        except Exception as error:
            raise ConversionError(f"the model raised on the example given as flatten=: {error}") from error
    result.steps = {False: follower.steps, True: _training_steps(model, example, modules)}
    linears: dict[Image, list[str]] = {}
    for path, images in follower.reached.items():
        if type(modules[path]) is ImageLinear:
            continue
        reason = follower.others.get(path) or _unfit(modules[path], model)
        if reason is None and len(images) == 1:
            linears.setdefault(next(iter(images)), []).append(path)
        else:
            result.refused.append(f"{path}: its weight {reason or 'takes the images of several modules'}")
    result.refused += [
        f"{image.site}: its image {reason}" for image, reason in follower.ends.items() if image not in linears
    ]
    for image, paths in linears.items():
        result.found.append(Flattened(image.site, image.shape, tuple(paths), _owner([image.site, *paths], called)))
    return result


def _training_steps(
    model: nn.Module, example: tuple[Any, ...], modules: Mapping[str, nn.Module]
) -> list[str] | Exception:
    follower = Follower(linear_weights(modules), turned=False)
    try:
        rehearse(model, bring(example, CONTIGUOUS), follower, training=True)
    except Exception as error:  # noqa: BLE001 a model that needs more than the example in training is none of ours
        return error
    return follower.steps


def linear_weights(modules: Mapping[str, nn.Module]) -> dict[str, torch.Tensor]:
    """Path of every Linear → its weight."""
    linears = {path: module for path, module in modules.items() if isinstance(module, nn.Linear)}
    return {path: linear.weight for path, linear in linears.items() if linear.weight.numel()}


def listen(modules: Mapping[str, nn.Module], answers: Answers, hooks: ExitStack) -> None:
    """Write down what every Linear among ``modules`` answers, until ``hooks`` closes."""

    def note(path: str, answer: object) -> None:
        if isinstance(answer, torch.Tensor):
            answers.setdefault(path, []).append(answer.detach().clone())

    for path, module in modules.items():
        if isinstance(module, nn.Linear):
            hooks.callback(on_output(module, partial(note, path)))


def on_output(module: nn.Module, tell: Callable[[object], None], *, first: bool = False) -> Callable[[], None]:
    """Tell of every result of ``module``, before or after its other hooks; the answer ends it."""
    return module.register_forward_hook(lambda *call: tell(call[2]), prepend=first).remove


def on_input(module: nn.Module, tell: Callable[[object], None], *, first: bool = False) -> Callable[[], None]:
    """Tell of the first argument of every call of ``module``; the answer ends it."""
    return module.register_forward_pre_hook(lambda *call: tell(next(iter(call[1]), None)), prepend=first).remove


def _watch(path: str, module: nn.Module, follower: Follower, called: set[str], hooks: ExitStack) -> None:
    def see(tensor: object) -> None:
        if isinstance(tensor, torch.Tensor) and _is_image(tensor):
            follower.see(path, tensor, tuple(tensor.shape))

    if isinstance(module, torch.jit.ScriptModule):
        return
    hooks.callback(on_input(module, lambda _: called.add(path)))
    if isinstance(module, nn.Flatten):
        hooks.callback(on_input(module, see))
    elif path:
        hooks.callback(on_output(module, see))


def _is_image(tensor: torch.Tensor) -> bool:
    """Whether flattening ``tensor`` would copy in channels last."""
    return (
        channels_last_for(tensor.dim()) is not None
        and tensor.is_floating_point()
        and tensor.layout is torch.strided
        and tensor.shape[0] > 0
        and tensor.shape[1] > 1
        and prod(tensor.shape[2:]) > 1
    )


def _unfit(linear: nn.Module, model: nn.Module) -> str | None:
    """Why the weight of a layer cannot get another shape."""
    weight = linear._parameters.get("weight")
    if type(linear) is not nn.Linear or weight is None:
        return "is not the parameter of a plain nn.Linear"
    if not weight.is_contiguous():
        return "is not contiguous"
    if sum(tensor.data_ptr() == weight.data_ptr() for tensor in model_tensors(model).values()) > 1:
        return "is also that of another layer"
    return None


def _owner(paths: Sequence[str], called: Collection[str]) -> str:
    """The innermost module that was called and contains all of ``paths``."""
    common: list[str] = []
    for names in zip(*(path.split(".")[:-1] for path in paths), strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    while ".".join(common) not in called:
        common.pop()
    return ".".join(common)
