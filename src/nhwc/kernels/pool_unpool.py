"""Maximum unpooling in 2-D and 3-D straight on channels-last rows.

torch's max_unpool3d copies and answers contiguous, and so does the gradient of both, which autograd composes of
a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nhwc.kernels.dispatcher import is_plain, is_recorded
from nhwc.kernels.layouts import loops_serve
from nhwc.kernels.pool_places import gathered, scattered
from nhwc.kernels.registry import kernel

MAX_UNPOOL = kernel(
    "max_unpool",
    "2-D and 3-D maximum unpooling, forward and backward",
    native="torch's own kernels run: they lose the format in 3-D and in the gradients of both",
    native_only=("*",),
)


@MAX_UNPOOL.replaces("aten::max_unpool2d")
def max_unpool2d(input: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002 torch's name
    if not _serves(input, indices, output_size, 4):
        return NotImplemented
    return scattered(input, indices, tuple(output_size), adds=False)


@MAX_UNPOOL.replaces("aten::max_unpool3d")
def max_unpool3d(
    input: torch.Tensor,  # noqa: A002
    indices: torch.Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Any:
    if not _serves(input, indices, output_size, 5) or not _are_plausible(stride, padding):
        return NotImplemented
    return scattered(input, indices, tuple(output_size), adds=False)


@MAX_UNPOOL.replaces("aten::max_unpool2d", "AutogradCPU")
def max_unpool2d_differentiable(input: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int]) -> Any:  # noqa: A002
    if not (is_recorded(input) and _serves(input, indices, output_size, 4)):
        return NotImplemented
    return _Unpooled.apply(
        input, indices, lambda values: torch.ops.aten.max_unpool2d.default(values, indices, output_size)
    )


@MAX_UNPOOL.replaces("aten::max_unpool3d", "AutogradCPU")
def max_unpool3d_differentiable(
    input: torch.Tensor,  # noqa: A002
    indices: torch.Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Any:
    served = is_recorded(input) and _serves(input, indices, output_size, 5) and _are_plausible(stride, padding)
    if not served:
        return NotImplemented
    arguments = indices, output_size, stride, padding
    return _Unpooled.apply(input, indices, lambda values: torch.ops.aten.max_unpool3d.default(values, *arguments))


class _Unpooled(torch.autograd.Function):
    """The operator itself, with a gradient that is read straight from the places."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, places: torch.Tensor, run: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        ctx.save_for_backward(places)
        return run(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return _taken(grads[0], places), None, None


class _Gathered(torch.autograd.Function):
    """values (N, C, ...) at places (N, C, ...); its gradient is a scatter, whose gradient is a gather again."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.sizes = tuple(values.shape[2:])
        return _checked(gathered(values.resolve_neg(), places))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        return _Scattered.apply(grads[0], places, ctx.sizes), None


class _Scattered(torch.autograd.Function):
    """values added up at their places, in a tensor of spatial sizes ``sizes``."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, places: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        ctx.save_for_backward(places)
        return _checked(scattered(values.resolve_neg(), places, sizes, adds=True))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return _taken(grads[0], places), None, None


def _taken(grad: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    if is_plain(grad):
        found: torch.Tensor = _Gathered.apply(grad, places)
        return found
    many = grad.reshape(*grad.shape[:2], -1).gather(2, places.flatten(2))  # torch's own, on many gradients at once
    return many.reshape(places.shape)


def _checked(result: Any) -> torch.Tensor:
    if result is NotImplemented:
        raise RuntimeError("the indices of a maximum unpooling were changed between its forward and its backward")
    assert isinstance(result, torch.Tensor)
    return result


def _serves(input: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int], rank: int) -> bool:  # noqa: A002
    return (
        input.dim() == rank
        and loops_serve(input)
        and is_plain(indices)
        and indices.dtype == torch.int64
        and indices.device == input.device
        and indices.shape == input.shape
        and len(output_size) == rank - 2
        and min(output_size) > 0
        # torch refuses there, since its own kernel depends on the order in which threads write
        and not torch.are_deterministic_algorithms_enabled()
    )


def _are_plausible(stride: Sequence[int], padding: Sequence[int]) -> bool:
    return len(stride) == len(padding) == 3 and min(stride) > 0
