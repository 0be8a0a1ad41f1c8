"""A Linear that takes flattened images in the order in which channels last keeps them, and the hooks that give it
such images.

A module in front of the flatten hands out its image (N, C, H, W) as a view (N, H * W * C, 1, 1): flattening that is
free. The weight is kept as (O, C, H, W) in channels last, so that its logical order stays the usual one while its
memory has the columns as the view has them. Hooks and modules are plain picklable objects: ``copy.deepcopy`` and
``torch.save`` carry them along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from nhwc.strides import channels_last_for, strides_for

_HOOK_TABLES = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class Flow(threading.local):
    """What runs between a module that hands out images and the Linear layers behind it, for each thread by itself.

    shape: that of one image, (C, H, W) or (C, D, H, W).
    inside: whether the module that owns both ends is being called; only then images are turned.
    turned: whether this call has turned its images: None before the first one.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.inside = False
        self.turned: bool | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Flow, (self.shape,)

    def turn(self, images: torch.Tensor) -> torch.Tensor:
        """Images (N, C, H, W) as (N, H * W * C, 1, 1): a view where they lie in channels last, else a copy."""
        channels, *pixels = self.shape
        if not self.inside or images.dim() != len(self.shape) + 1 or prod(images.shape[1:]) != prod(self.shape):
            return images
        fits = bool(images.shape[1] == channels)  # a tensor under torch.jit.trace
        if self.turned is not None and self.turned is not fits:
            raise RuntimeError(
                f"images of {tuple(images.shape[1:])} and of {self.shape} are flattened in one call, and the Linear "
                "behind cannot tell which it gets; call nhwc.restore(model), and convert without flatten="
            )
        self.turned = fits
        if not fits:
            return images
        return images.movedim(1, -1).reshape(images.shape[0], prod(self.shape), *(1 for _ in pixels))


class FlowStarts:
    """A forward pre-hook of the module that owns both ends.

    linears: paths of the changed layers below it; where one was replaced, nothing is turned any more.
    modes: training flags under which the flow is proven.
    """

    def __init__(self, flow: Flow, linears: Collection[str], modes: Collection[bool]) -> None:
        self.flow = flow
        self.linears = tuple(linears)
        self.modes = tuple(modes)

    def __call__(self, module: nn.Module, *_: object) -> None:  # torch.compile looks at all that has a name
        self.flow.inside = module.training in self.modes and all(self._stands(module, path) for path in self.linears)
        self.flow.turned = None

    def _stands(self, module: nn.Module, path: str) -> bool:
        found: object = module
        for name in path.split("."):
            found = getattr(found, name, None)
        return isinstance(found, ImageLinear) and found.flow is self.flow


class FlowEnds:
    """A forward hook of the same module, called after an exception too."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def __call__(self, *_: object) -> None:
        self.flow.inside = False
        self.flow.turned = None


class TurnOutput:
    """A forward hook: the module's result is turned."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: object) -> object:
        del module, args
        return self.flow.turn(output) if isinstance(output, torch.Tensor) else output


class TurnInput:
    """A forward pre-hook of an ``nn.Flatten``: what comes in is turned."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        del module
        return tuple(self.flow.turn(each) if isinstance(each, torch.Tensor) else each for each in args)


class ImageLinear(nn.Linear):
    """``nn.Linear`` with a weight of (O, C, H, W) instead of (O, C * H * W), mostly in channels last.

    It takes (N, C * H * W) as ``nn.Linear`` does; only from the flow in front of it does it take the columns in the
    order H, W, C. Where those of input and weight differ, the input is copied. State dicts hold (O, C * H * W).
    """

    flow: Flow

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 torch's own word for it
        """(N, C * H * W) → (N, O)."""
        image_order = self._weight_lies_in_image_order()
        rows = input
        if input.shape[-1] == self.in_features and self._input_is_turned() is not image_order:
            channels, pixels = self.flow.shape[0], prod(self.flow.shape[1:])
            split = (channels, pixels) if image_order else (pixels, channels)
            rows = input.reshape(*input.shape[:-1], *split).transpose(-1, -2).flatten(-2)
        weight = self.weight.movedim(1, -1) if image_order else self.weight
        return functional.linear(rows, weight.flatten(1), self.bias)

    def _weight_lies_in_image_order(self) -> bool:
        weight = self.weight
        return weight.dim() > 2 and weight.movedim(1, -1).is_contiguous()

    def _input_is_turned(self) -> bool:
        if not self.flow.inside and not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            raise RuntimeError(
                "a Linear that nhwc.convert(flatten=...) changed is computed again during backward, where it cannot "
                "tell the order of its input; checkpoint no part that begins behind the flatten, or call nhwc.restore"
            )
        return self.flow.turned is True

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        name = f"{prefix}weight"
        if keep_vars:
            destination[name] = destination[name].flatten(1)
            return
        with torch.inference_mode():  # the copy refuses to be written to, which would not reach the model
            destination[name] = destination[name].flatten(1)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any], *rest: Any
    ) -> None:
        name = f"{prefix}weight"
        given = state_dict.get(name)
        usual = (self.out_features, self.in_features)
        if isinstance(given, torch.Tensor) and self.weight.dim() > 2 and tuple(given.shape) == usual:
            given = given.reshape(self.weight.shape)
            if local_metadata.get("assign_to_params_buffers", False):
                given = in_image_order(given)
            state_dict = {**state_dict, name: given}  # the caller's own stays as it is
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def in_image_order(weight: torch.Tensor) -> torch.Tensor:
    """A copy of a weight (O, C, H, W) in channels last."""
    strides = strides_for(weight.shape, channels_last_for(weight.dim()))
    return weight.new_empty_strided(weight.shape, strides).copy_(weight.detach())


def change_class(linear: nn.Module, flow: Flow) -> Callable[[], None]:
    """Make a plain Linear one that takes images; the answer undoes it."""
    linear.__class__ = ImageLinear
    vars(linear)["flow"] = flow

    def undo() -> None:
        vars(linear).pop("flow", None)
        linear.__class__ = nn.Linear

    return undo


def flows_of(model: nn.Module) -> set[int]:
    """The ``id`` of every flow that starts in ``model``: one that comes from outside is none of its own."""
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    return {id(hook.flow) for hook in hooks if isinstance(hook, FlowStarts)}


def take_off(module: nn.Module, flows: Collection[int]) -> None:
    """Remove the hooks of these flows from one module, a copied or unpickled one too, and make its Linear a plain one.

    The weight has to have its old shape by then.
    """
    hooks = {**module._forward_pre_hooks, **module._forward_hooks}
    for key, hook in hooks.items():
        if isinstance(hook, FlowStarts | FlowEnds | TurnOutput | TurnInput) and id(hook.flow) in flows:
            for table in _HOOK_TABLES:
                getattr(module, table).pop(key, None)
    if type(module) is ImageLinear and id(module.flow) in flows:
        vars(module).pop("flow")
        module.__class__ = nn.Linear  # type: ignore[assignment]
