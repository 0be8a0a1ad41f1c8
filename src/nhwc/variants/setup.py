"""A variant in the making: a copy of the model with its inputs, which the parts of the variant change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from nhwc import kernels
from nhwc.errors import ModelError
from nhwc.variants.registry import parse


@dataclass
class Setup:
    """One variant's own model, optimizer and inputs; parts change it in place.

    call: what is called with the inputs, the model itself unless a part put something in its place.
    dtype: what autocast computes in, None without autocast.
    only_inference: why a part cannot train, empty where it can.
    during_forward, during_step: makers of contexts that each forward pass (with its loss), or each whole step, runs in.
    around: makers of contexts that steps run in and whose cost is not theirs: entered by ``surroundings`` around them.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    device: torch.device
    optimizer: Optimizer | None = None
    call: Callable[..., Any] | None = None
    dtype: torch.dtype | None = None
    only_inference: str = ""
    during_forward: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    during_step: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    around: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """What every step has to run in; enter it before any clock starts."""
        with ExitStack() as stack:
            for context in self.around:
                stack.enter_context(context())
            yield

    def kernels_on(self) -> tuple[str, ...]:
        """The kernels of nhwc.kernels that are on while a step runs, by name."""
        with self.surroundings():
            return kernels.active()

    def forward(self, loss: Callable[[Any], Any] | None = None) -> Any:
        """The model's output, or what ``loss`` makes of it, inside the contexts of a forward pass."""
        with ExitStack() as stack:
            for context in self.during_forward:
                stack.enter_context(context())
            # compared with None: the truth of a compiled module asks for its length
            called = self.model if self.call is None else self.call
            output = called(*self.inputs, **self.keywords)
            return output if loss is None else loss(output)


def prepare(
    spec: str,
    model: nn.Module,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    device: torch.device,
    optimizer: Optimizer | None = None,
) -> Setup:
    """A variant's Setup; the model, the optimizer and the inputs that were given stay untouched.

    Raises RegistryError for an unknown part, VariantError where a part cannot be had on the device, ConversionError
    where the model refuses a memory format, ModelError where the model cannot be copied.
    """
    chosen = parse(spec, device)
    # in one go, so that the copied optimizer holds the copied parameters
    own_model, own_optimizer, own_inputs, own_keywords = _copied(model, optimizer, tuple(inputs), dict(keywords))
    setup = Setup(own_model, own_inputs, own_keywords, device, own_optimizer)
    for part in chosen:
        part.apply(setup)
    return setup


def _copied(*values: Any) -> Any:
    model, optimizer, inputs, keywords = values
    try:
        own_model, own_optimizer = copy.deepcopy((model, optimizer))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        raise ModelError(
            f"the model cannot be copied ({' '.join(str(error).split())[:200]}): every variant runs a copy.deepcopy of "
            "it; run a lazy model once before, take weight_norm and spectral_norm from "
            "torch.nn.utils.parametrizations, and keep locks, operators and outputs of a forward pass out of it"
        ) from error
    return own_model, own_optimizer, *tree_map(_own, (inputs, keywords))


def _own(value: Any) -> Any:
    """A tensor's twin in memory of its own: same strides, requiring gradients alike."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
