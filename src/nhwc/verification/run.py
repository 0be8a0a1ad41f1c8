"""One run of one variant on a copy of the model, and every result that is judged."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

from nhwc.errors import ModelError, VariantError
from nhwc.recorder.run import first_line
from nhwc.variants import Setup, prepare
from nhwc.variants.steps import guarded

Key = tuple[str, str]
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True)
class Subject:
    """What is verified: the user's own model, inputs and optimizer, none of which is ever run or changed itself.

    loss: model output → scalar tensor; without one a training step starts from a fixed random gradient.
    seed: of every random generator at the start of each run.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    device: torch.device
    train: bool
    loss: Callable[[Any], torch.Tensor] | None
    optimizer: Optimizer | None
    seed: int


@dataclass
class Results:
    """Every result of one run by (group, name). changed: whether a buffer is not as it was before."""

    tensors: dict[Key, torch.Tensor] = field(default_factory=dict)
    changed: dict[Key, bool] = field(default_factory=dict)


class StepError(Exception):
    """The step raised; the cause is what it raised."""

    @property
    def original(self) -> BaseException:
        assert self.__cause__ is not None
        return self.__cause__

    @property
    def sentence(self) -> str:
        """What was raised, in one line."""
        error = self.original
        if out_of_memory(error):
            return f"the model ran out of memory ({first_line(error)}); use a smaller batch or smaller inputs"
        return f"the model raised {type(error).__name__}: {first_line(error)}"


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on whatever device."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY)


def run(
    subject: Subject,
    spec: str,
    modes: AbstractContextManager[Any] | None = None,
    *,
    double: bool = False,
    change: Callable[[Setup], None] | None = None,
    watch: Callable[[Setup], AbstractContextManager[Any]] | None = None,
) -> Results:
    """Run the variant ``spec`` once on a copy of the subject and return its results.

    modes: entered around the step. double: everything floating in float64. change: applied to the copy before it runs.
    watch: makes a context around the step from the copy, inside ``modes``. Raises StepError where the step raises.
    """
    setup = prepare(spec, subject.model, subject.inputs, subject.keywords, subject.device, subject.optimizer)
    if subject.train and setup.only_inference:
        raise VariantError(setup.only_inference)
    setup.model.train(subject.train)
    if double:
        to_double(setup)
    if change is not None:
        change(setup)
    setup.inputs, setup.keywords = tree_map(_leaf, (setup.inputs, setup.keywords))
    buffers = {name: buffer.detach().clone() for name, buffer in setup.model.named_buffers()}
    setup.model.zero_grad(set_to_none=True)
    _seed(subject.seed)
    with ExitStack() as stack:
        stack.enter_context(setup.surroundings())
        stack.enter_context(_float64_by_default() if double else ExitStack())
        stack.enter_context(modes or ExitStack())
        if watch is not None:
            stack.enter_context(watch(setup))
        try:
            output = _step(setup, subject)
        except ModelError:
            raise
        except Exception as error:
            raise StepError from error
    return _results(setup, subject, output, buffers)


def _step(setup: Setup, subject: Subject) -> Any:
    told = guarded(subject.loss) if subject.loss is not None and subject.train else None
    with torch.set_grad_enabled(subject.train):
        with ExitStack() as stack:
            for context in setup.during_step:
                stack.enter_context(context())
            output, loss = setup.forward(lambda output: (output, None if told is None else told(output)))
        if subject.train:
            # what a later in-place operator does to the output is no result of the forward pass
            kept = tree_map(lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value, output)
            _backward(output if loss is None else loss)
            if setup.optimizer is not None:
                setup.optimizer.step()
            return kept
    return output


def _backward(output: Any) -> None:
    outputs = [tensor for _, tensor in named_tensors(output) if tensor.requires_grad]
    if not outputs:
        raise ModelError("no output of the model requires a gradient; verify it without train, or pass a loss")
    with _disable_current_modes():  # where the backward pass starts from is no part of the step
        gradients = [_gradient(tensor, place) for place, tensor in enumerate(outputs)]
    torch.autograd.backward(outputs, gradients)


def _gradient(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """A gradient to start from, between 0.5 and 1.5: the same values for the same shape, exact in every dtype.

    Ones alone would vanish in a softmax or a batch norm.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(32, 97, tensor.shape, generator=generator) / 64
    return torch.empty_like(tensor).copy_(values)


def _results(setup: Setup, subject: Subject, output: Any, before: Mapping[str, torch.Tensor]) -> Results:
    found = Results({("output", name): tensor.detach() for name, tensor in named_tensors(output)})
    for name, buffer in setup.model.named_buffers():
        found.tensors["buffer", name] = buffer.detach()
        was = before.get(name)
        found.changed["buffer", name] = was is None or not _equal(was, buffer)
    if not subject.train:
        return found
    for name, parameter in setup.model.named_parameters():
        if parameter.grad is not None:
            found.tensors["gradient", name] = parameter.grad.detach()
        if setup.optimizer is not None:
            found.tensors["parameter", name] = parameter.detach()
    for name, tensor in named_inputs(setup):
        if tensor.grad is not None:
            found.tensors["gradient", name] = tensor.grad.detach()
    return found


def named_tensors(tree: Any, root: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in a nest of containers and dataclass objects, with the way to it: "output['aux']"."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        name = root + keystr(path)
        if isinstance(leaf, torch.Tensor):
            yield name, leaf
        elif hasattr(leaf, "__dataclass_fields__"):
            for part in leaf.__dataclass_fields__:
                yield from named_tensors(getattr(leaf, part), f"{name}.{part}")


def named_inputs(setup: Setup) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor among the arguments, by position or keyword."""
    for place, value in enumerate(setup.inputs):
        yield from named_tensors(value, f"input {place}")
    for key, value in setup.keywords.items():
        yield from named_tensors(value, f"input {key!r}")


def to_double(setup: Setup) -> None:
    """Parameters, buffers, floating inputs and optimizer state in float64; the optimizer runs as a plain loop."""
    setup.model.double()
    setup.inputs, setup.keywords = tree_map(_double, (setup.inputs, setup.keywords))
    if setup.optimizer is None:
        return
    for group in setup.optimizer.param_groups:
        group.update({name: False for name in ("fused", "foreach") if name in group})
    for state in setup.optimizer.state.values():
        state.update({key: _double(value) for key, value in state.items() if key != "step"})


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.detach().to(torch.complex128).requires_grad_(value.requires_grad)
    return value


def _leaf(value: Any) -> Any:
    """A tensor whose gradient is kept: bringing one to another format makes it the result of a copy."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value.detach().requires_grad_()
    return value


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


@contextmanager
def _float64_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
