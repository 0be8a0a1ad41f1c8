"""One run of a case in one format: its results, the gradients of its inputs, and what became of the format of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from nhwc.operators import Handling
from nhwc.ops.case import Case, has_format, tensors_of
from nhwc.strides import channels_last_for, strides_for

#: Brackets a direction ("forward", "backward", "expanded") of the run that it belongs to.
Mark = Callable[[str], AbstractContextManager[object]]
DIRECTIONS = ("forward", "backward", "expanded")


@dataclass
class Direction:
    """Tensors that one direction wrote, with what became of their format: None where it cannot be told.

    error: what it raised, on one line; nothing was written then. drew: whether it drew random numbers.
    """

    tensors: list[torch.Tensor | None] = field(default_factory=list)
    handlings: list[Handling | None] = field(default_factory=list)
    error: str = ""
    drew: bool = False


def attempt(case: Case, *, channels_last: bool, mark: Mark) -> dict[str, Direction]:
    """Run a case on fresh tensors in one format, forward and where possible backward.

    The gradient that enters the backward pass has the format of the inputs; in "expanded" it is one number expanded.
    """
    ready = case.formatted(channels_last=channels_last)
    found = {"forward": Direction()}
    forward = found["forward"]
    _seed()
    before = torch.get_rng_state()
    try:
        with _seeding() as seeded, mark("forward"):
            written = ready()
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is what the survey is after
        forward.error = one_line(error)
        return found
    # random operators of torch's database seed themselves, and put the state back afterwards
    forward.drew = bool(seeded) or not torch.equal(before, torch.get_rng_state())
    results = list(tensors_of(written))
    ranks = {tensor.dim() for tensor in ready.pictures}
    owned = {_storage(tensor) for tensor in ready.tensors}
    forward.handlings = [_handling(tensor, ranks, owned) for tensor in results]
    _backward(ready, results, found, mark, channels_last=channels_last)
    forward.tensors = [tensor.detach() for tensor in results]
    return found


@contextlib.contextmanager
def _seeding() -> Iterator[list[object]]:
    """What torch.manual_seed is called with inside."""
    seeded: list[object] = []
    before = torch.manual_seed

    def noted(seed: Any) -> torch.Generator:
        seeded.append(seed)
        return before(seed)

    torch.manual_seed = noted
    try:
        yield seeded
    finally:
        torch.manual_seed = before


def _seed() -> None:
    """As torch.manual_seed, which records a traceback for every kind of device that has not started."""
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


def _backward(
    ready: Case, written: Sequence[torch.Tensor], found: dict[str, Direction], mark: Mark, *, channels_last: bool
) -> None:
    outputs = [each for each in written if each.requires_grad and each.is_floating_point()]
    inputs = [each for each in ready.tensors if each.requires_grad]
    if not outputs or not inputs:
        return
    pictures = {id(tensor) for tensor in ready.pictures}
    for direction in ("backward", "expanded"):
        arriving = [_gradient(each, channels_last=channels_last, expanded=direction == "expanded") for each in outputs]
        result = found[direction] = Direction()
        try:
            with mark(direction):
                gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(
                    outputs, inputs, arriving, retain_graph=True, allow_unused=True
                )
        except Exception as error:  # noqa: BLE001 - as above
            result.error = one_line(error)
            continue
        owned = {_storage(tensor) for tensor in (*arriving, *ready.tensors)}
        result.tensors = [None if each is None else each.detach() for each in gradients]
        result.handlings = [
            None if each is None or id(given) not in pictures else _handling(each, {given.dim()}, owned)
            for given, each in zip(inputs, gradients, strict=True)
        ]


def _gradient(output: torch.Tensor, *, channels_last: bool, expanded: bool) -> torch.Tensor:
    """A gradient for an output: the same numbers in either format, whose sum does not cancel."""
    if expanded:
        return torch.ones((), dtype=output.dtype, device=output.device).expand(output.shape)
    numbers = torch.linspace(-1.0, 2.0, max(output.numel(), 1), dtype=torch.float64)[: output.numel()]
    values = numbers.to(output.device, output.dtype).reshape(output.shape)
    wanted = channels_last_for(output.dim()) if channels_last else None
    strides = strides_for(output.shape, wanted or "contiguous")
    return torch.empty_strided(output.shape, strides, dtype=output.dtype, device=output.device).copy_(values)


def _handling(tensor: torch.Tensor, ranks: set[int], owned: set[int]) -> Handling | None:
    wanted = channels_last_for(tensor.dim())
    if wanted is None or tensor.dim() not in ranks or tensor.layout != torch.strided or not has_format(tensor.shape):
        return None
    if tuple(tensor.stride()) == strides_for(tensor.shape, wanted):
        return Handling.KEEPS
    overlaps = any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return Handling.VIEW if overlaps or _storage(tensor) in owned else Handling.LOSES


def _storage(tensor: torch.Tensor) -> int:
    with contextlib.suppress(NotImplementedError, RuntimeError):  # sparse results have none
        return tensor.untyped_storage().data_ptr()
    return -1


def one_line(error: BaseException) -> str:
    """An exception as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")


def without_gradients(case: Case) -> Case:
    """The same case with nothing to differentiate, for operators that write into their input."""

    def detached(tensor: torch.Tensor) -> Any:
        return tensor.detach()

    return case.changed(detached)
