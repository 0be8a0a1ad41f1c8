"""Level one: every operator call that reaches the dispatcher, forward and backward.

Private interface, read from torch 2.11 to 2.14: torch._C._current_autograd_node (the node whose backward runs).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from nhwc.model import Call, Phase, Source
from nhwc.recorder.arguments import encode, generators, mutated, written_unsaid
from nhwc.recorder.inner import marker
from nhwc.recorder.modules import ModuleStack
from nhwc.recorder.output import Capture
from nhwc.recorder.source import SourceLines
from nhwc.recorder.state import StepGuard
from nhwc.recorder.static import answer_for_fake, is_fake
from nhwc.recorder.storage import NO_STORAGE, TensorReader
from nhwc.recorder.ties import ForwardTies

_ACCUMULATE = "AccumulateGrad"
Correction = Callable[[Any, Sequence[torch.Tensor], Any], Any]


@dataclass(slots=True)
class RawCall:
    """A call as seen live: the frozen Call, addresses of its inputs, and where its library output lies."""

    call: Call
    addresses: tuple[int, ...]
    output_start: int = 0
    output_end: int = 0


class _Place(NamedTuple):
    """Where a call belongs. ``owner``: the call that nodes made now come from, -1 for the call itself."""

    phase: Phase
    module: str
    kind: str
    source: Source | None
    forward: int | None = None
    owner: int = -1


class CallRecorder(TorchDispatchMode):
    """Records every operator call into ``raw``; keeps no tensor alive.

    guard: told of every memory that a call is about to write and that is older than the step.
    correct: what a result is replaced by (static recording), None for nothing.
    kernels_on: asked at every call which kernels of ours are on.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        modules: ModuleStack,
        tensors: TensorReader,
        guard: StepGuard,
        library: Capture | None,
        *,
        inner: bool = True,
        correct: Correction | None = None,
        kernels_on: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.raw: list[RawCall] = []
        self._failed: tuple[int, BaseException] | None = None
        self.inner = inner
        self._modules = modules
        self._tensors = tensors
        self._guard = guard
        self._library = library
        self._correct = correct
        self._kernels_on = kernels_on
        self._kernels: dict[Phase, set[str]] = {}
        self._sources = SourceLines()
        self._ties = ForwardTies()
        self._born: set[int] = set()
        self._optimizer: tuple[bool, bool] | None = None
        self._lines: dict[tuple[str, Source | None], list[int]] = {}

    def forget_failure(self, error: BaseException | None) -> int | None:
        """The call that raised ``error``, None where no operator did; the exception is let go."""
        failed, self._failed = self._failed, None
        return failed[0] if failed is not None and failed[1] is error else None

    def kernels(self) -> tuple[str, ...]:
        """The kernels that were on in the forward pass, and in the backward pass where there was one, by name."""
        seen = [names for phase, names in self._kernels.items() if phase is not Phase.OPTIMIZER]
        return tuple(sorted(set.intersection(*seen))) if seen else ()

    def enter_optimizer(self, optimizer: Optimizer) -> None:
        """Calls up to ``leave_optimizer`` are the optimizer's, but for those of a closure that it calls."""
        in_backward = torch._C._current_autograd_node() is not None
        self._optimizer = (in_backward, bool(optimizer.defaults.get("differentiable")))

    def leave_optimizer(self) -> None:
        """The optimizer's step is over."""
        self._optimizer = None

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "namespace", "") == "prim":  # a fake tensor asked for its device, say: no operator of the step
            return answer_for_fake(func, args) or func(*args, **kwargs)
        index = len(self.raw)
        inputs: list[torch.Tensor] = []
        arguments = tuple(encode(value, inputs) for value in args)
        keywords = tuple((key, encode(value, inputs)) for key, value in kwargs.items())
        before = tuple(self._tensors.read(tensor) for tensor in inputs)
        mutates = mutated(func, args, kwargs, inputs)
        operator = str(func)
        place = self._place(index, operator)
        self._kernels.setdefault(place.phase, set()).update(self._kernels_on())
        makes_node = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        owner = index if place.owner < 0 else place.owner
        self._ties.note(owner, operator, makes_node=makes_node, mutates=bool(mutates))
        self._save(func, args, kwargs, [(inputs[at], before[at].storage) for at in mutates])
        call = Call(
            index,
            operator,
            "",
            before,
            (),
            place.phase,
            place.module,
            place.kind,
            place.source,
            place.forward,
            mutates=mutates,
            arguments=arguments,
            keywords=keywords,
        )
        raw = RawCall(call, tuple(_address(tensor) for tensor in inputs))
        self.raw.append(raw)
        if self._library is not None:
            raw.output_start = self._library.position()
        try:
            with marker(index) if self.inner else contextlib.nullcontext():
                result = func(*args, **kwargs)
        except BaseException as error:
            self._failed = (index, error)
            raise
        if self._library is not None:
            raw.output_end = self._library.position()
        if self._correct is not None:
            result = self._correct(func, inputs, result)
        found: list[torch.Tensor] = []
        encode(result, found)
        outputs = tuple(self._tensors.read(tensor) for tensor in found)
        shared = {meta.storage for meta in before}
        self._born |= {meta.storage for meta in outputs} - shared
        view = bool(outputs) and not mutates and all(meta.storage in shared for meta in outputs)
        raw.call = replace(call, outputs=outputs, view=view)
        return result

    def _save(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], written: Sequence[tuple[torch.Tensor, int]]
    ) -> None:
        """Let the guard keep what the call is about to change, where it is older than the step."""
        for tensor, storage in written:
            if storage not in self._born:
                self._guard.save_memory(tensor)
        for tensor in written_unsaid(func, args, kwargs):
            if self._tensors.read(tensor).storage not in self._born:
                self._guard.save_memory(tensor)
        for generator in generators(args, kwargs):
            self._guard.watch_generator(generator)

    def _place(self, index: int, operator: str) -> _Place:
        """Phase, module path, module type, source line and forward call of the call that runs now."""
        node: Any = torch._C._current_autograd_node()
        running = self._modules.current(in_backward=node is not None)
        module, kind = running or ("", "")
        if self._in_optimizer(node is not None):
            return _Place(Phase.OPTIMIZER, module, kind, self._sources.current())
        if node is None:
            source = self._sources.current()
            self._lines.setdefault((operator, source), []).append(index)
            return _Place(Phase.FORWARD, module, kind, source)
        if running is not None:  # a module runs again: recomputation under activation checkpointing
            return _Place(Phase.BACKWARD, module, kind, self._sources.current())
        source, recomputes = self._sources.inside_backward()
        forward = self._ties.of(node)
        if recomputes:
            return self._recomputed(operator, source, forward)
        if _ACCUMULATE in node.name():
            variable = getattr(node, "variable", None)
            name = self._tensors.name_of(variable) if variable is not None else None
            line = source or self._sources.current()
            return _Place(Phase.BACKWARD, (name or "").rpartition(".")[0], "", line, owner=index)
        if forward is None:
            return _Place(Phase.BACKWARD, "", "", source or self._sources.current())
        origin = self.raw[forward].call
        return _Place(Phase.BACKWARD, origin.module, origin.module_type, source or origin.source, forward, forward)

    def _in_optimizer(self, in_backward: bool) -> bool:
        if self._optimizer is None:
            return False
        stepped_in_backward, differentiable = self._optimizer
        if in_backward and not stepped_in_backward:
            return False
        # an optimizer updates without grad mode; a closure that it calls runs in it
        return differentiable or not torch.is_grad_enabled()

    def _recomputed(self, operator: str, source: Source | None, origin: int | None) -> _Place:
        """A functional call that activation checkpointing repeats: its module is that of the same line before."""
        same = self._lines.get((operator, source), [])
        if not same:
            return _Place(Phase.BACKWARD, "", "", source)
        near = self.raw[min(same, key=lambda call: abs(call - (origin or 0)))].call
        return _Place(Phase.BACKWARD, near.module, near.module_type, source)


def _address(tensor: torch.Tensor) -> int:
    if tensor.is_meta or is_fake(tensor):
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except NO_STORAGE:
        return 0
