"""Our own samples by name: one function from (draw, shape) to a case, registered where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from nhwc.errors import RegistryError
from nhwc.ops.case import Case
from nhwc.ops.shapes import EDGES, LARGE, SINGLE, USUAL

Shape = tuple[int, ...]
GROUPS = ("operator", "torchvision", "module", "idiom")


@dataclass(frozen=True)
class Draw:
    """Makes the tensors of a sample, the same ones every time. Float tensors require gradients unless told not to."""

    dtype: torch.dtype
    device: str

    def normal(self, *shape: int, grad: bool = True) -> torch.Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, device=self.device).to(self.dtype).requires_grad_(grad)

    def uniform(self, low: float, high: float, *shape: int, grad: bool = True) -> torch.Tensor:
        """Numbers between two bounds."""
        return torch.empty(shape, device=self.device).uniform_(low, high).to(self.dtype).requires_grad_(grad)

    def module(self, module: nn.Module, *inputs: torch.Tensor, training: bool = True) -> Case:
        """A case that runs a module on inputs; its parameters and buffers are arguments too."""
        state = {
            name: tensor.detach().clone() for name, tensor in module.to(self.device, self.dtype).state_dict().items()
        }
        learned = {name for name, _ in module.named_parameters()}
        for name, tensor in state.items():
            tensor.requires_grad_(name in learned)
        module.train(training)

        def run(tensors: dict[str, torch.Tensor], *given: torch.Tensor) -> object:
            return torch.func.functional_call(module, tensors, given)

        return Case(run, (state, *inputs))


Make = Callable[[Draw, Shape], Case]
_Function = TypeVar("_Function", bound=Make)


@dataclass(frozen=True)
class OwnOperator:
    """One registered sample, made for every shape that the survey looks at."""

    name: str
    group: str
    make: Make
    ranks: tuple[int, ...]
    is_comparable: bool = True

    def cases(self, dims: int, dtype: torch.dtype, device: str) -> list[Case]:
        """The sample on a batch and on a single picture or volume; none where it does not take this rank or dtype."""
        if dims not in self.ranks:
            return []
        return [self._made(shape, dtype, device) for shape in (USUAL[dims], SINGLE[dims])]

    def edges(self, cases: Sequence[Case], dims: int) -> Iterator[tuple[str, Case]]:
        """The sample on one channel, one pixel, ...; those that it cannot be made for are left out."""
        like = _float_tensor(cases[0])
        for label, shape in EDGES[dims].items():
            try:
                case = self._made(shape, like.dtype, like.device.type)
            except (ValueError, RuntimeError, ZeroDivisionError):  # a module that no such shape fits
                continue
            yield label, case

    def large(self, cases: Sequence[Case], dims: int) -> Case | None:
        """The sample at a representative size."""
        like = _float_tensor(cases[0])
        return self._made(LARGE[dims], like.dtype, like.device.type)

    def _made(self, shape: Shape, dtype: torch.dtype, device: str) -> Case:
        torch.manual_seed(0)
        return self.make(Draw(dtype, device), shape)


_OPERATORS: dict[str, OwnOperator] = {}


def sample(name: str, group: str, dims: Sequence[int] = (2, 3)) -> Callable[[_Function], _Function]:
    """Register a function as the sample of an operator, for pictures (2), volumes (3) or both.

    Raises RegistryError for an unknown group, and for a name that is taken.
    """
    if group not in GROUPS:
        raise RegistryError(f"the group {group!r} is not known; the groups are {', '.join(GROUPS)}")

    def register(function: _Function) -> _Function:
        if name in _OPERATORS:
            raise RegistryError(f"the sample {name!r} is registered twice; give the second another name")
        _OPERATORS[name] = OwnOperator(name, group, function, tuple(dims))
        return function

    return register


def own_operators() -> tuple[OwnOperator, ...]:
    """All registered samples, in their order."""
    return tuple(_OPERATORS.values())


def _float_tensor(case: Case) -> torch.Tensor:
    return next(tensor for tensor in case.tensors if tensor.is_floating_point())
