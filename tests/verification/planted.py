"""Operators with faults that show for channels-last input only, registered in the two ways that Python offers."""

from __future__ import annotations

import torch
from torch import nn

library = torch.library.Library("planted", "FRAGMENT")


def is_last(x: torch.Tensor) -> bool:
    """Whether ``x`` lies in channels last, told by its strides, so that one channel tells too."""
    _, c, h, w = x.shape
    return x.stride() == (h * w * c, 1, w * c, c)


# wrong values

library.define("wrong_values(Tensor x) -> Tensor")


def wrong_values(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if is_last(x):
        y[:, 0] += 0.25
    return y


library.impl("wrong_values", wrong_values, "CPU")


@torch.library.custom_op("planted::wrong_values_custom", mutates_args=())
def wrong_values_custom(x: torch.Tensor, scale: float) -> torch.Tensor:
    y = x * scale
    if is_last(x):
        y = y + 0.25
    return y


# values that are a little too large, in whatever dtype

library.define("too_large(Tensor x) -> Tensor")


def too_large(x: torch.Tensor) -> torch.Tensor:
    return x * 2 * (1.05 if is_last(x) else 1)


library.impl("too_large", too_large, "CPU")


# wrong values in the backward operator alone

library.define("square(Tensor x) -> Tensor")
library.define("square_backward(Tensor gradient, Tensor x) -> Tensor")
library.impl("square", lambda x: x * x, "CPU")


def square_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    result = gradient * x * 2
    if is_last(x):
        result = result * 1.01
    return result


library.impl("square_backward", square_backward, "CPU")


def _keep(ctx: object, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
    return torch.ops.planted.square_backward(gradient, *ctx.saved_tensors)


torch.library.register_autograd("planted::square", _backward, setup_context=_keep, lib=library)


@torch.library.custom_op("planted::cube_backward", mutates_args=())
def cube_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    result = gradient * x * x * 3
    return -result if is_last(x) else result


@torch.library.custom_op("planted::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


cube.register_autograd(
    lambda ctx, gradient: torch.ops.planted.cube_backward(gradient, *ctx.saved_tensors), setup_context=_keep
)


# wrong values for one channel alone

library.define("one_channel(Tensor x) -> Tensor")


def one_channel(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[1] == 1 and is_last(x) else x.clone()


library.impl("one_channel", one_channel, "CPU")


@torch.library.custom_op("planted::one_channel_custom", mutates_args=())
def one_channel_custom(x: torch.Tensor) -> torch.Tensor:
    return x * 3 if x.shape[1] == 1 and is_last(x) else x.clone()


# NaN

library.define("not_a_number(Tensor x) -> Tensor")


def not_a_number(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    if is_last(x):
        y[0, 0] = float("nan")
    return y


library.impl("not_a_number", not_a_number, "CPU")


@torch.library.custom_op("planted::not_a_number_custom", mutates_args=())
def not_a_number_custom(x: torch.Tensor) -> torch.Tensor:
    return torch.log(-x.abs()) if is_last(x) else x.clone()


# silent change of dtype

library.define("other_dtype(Tensor x) -> Tensor")


def other_dtype(x: torch.Tensor) -> torch.Tensor:
    return x.double() if is_last(x) else x.clone()


library.impl("other_dtype", other_dtype, "CPU")


@torch.library.custom_op("planted::other_dtype_custom", mutates_args=())
def other_dtype_custom(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16) if is_last(x) else x.clone()


# the result lies in the memory of the operand

library.define("same_memory(Tensor x) -> Tensor")


def same_memory(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x) if is_last(x) else x.clone()


library.impl("same_memory", same_memory, "CPU")


# an operand is written that the schema does not name

library.define("writes_operand(Tensor x) -> Tensor")


def writes_operand(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if is_last(x):
        x.zero_()
    return y


library.impl("writes_operand", writes_operand, "CPU")


# random numbers that the operator does not tell of

library.define("noise(Tensor x) -> Tensor")
library.impl("noise", lambda x: x + torch.rand_like(x), "CPU")


class Around(nn.Module):
    """A planted operator between a convolution and what follows it."""

    def __init__(self, name: str, *arguments: object, channels: int = 4, after: str = "relu") -> None:
        super().__init__()
        self.before = nn.Conv2d(3, channels, 3, padding=1)
        self.name = name
        self.arguments = arguments
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        y = getattr(torch.ops.planted, self.name)(x, *self.arguments)
        if self.after == "in place":
            return y.detach().mul_(3) + x
        return y.relu().float()
