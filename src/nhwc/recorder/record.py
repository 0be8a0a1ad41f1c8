"""Run a model or a step once and return its Trace: the three levels joined, everything put back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from nhwc.errors import ModelError, NhwcError, RecordingError
from nhwc.machine import environment
from nhwc.model import OptimizerStateMeta, ParameterMeta, Phase, StepError, Trace
from nhwc.recorder import library, ranks, static
from nhwc.recorder.compiled import is_compiled, record_compiled
from nhwc.recorder.dispatch import CallRecorder
from nhwc.recorder.inner import KernelProfiler
from nhwc.recorder.join import join
from nhwc.recorder.modules import ModuleStack, unwrap
from nhwc.recorder.optimizers import OptimizerWatch, state_layouts
from nhwc.recorder.output import Capture, captured
from nhwc.recorder.reach import reachable
from nhwc.recorder.run import Options, device_of, first_line, run_model, tensors_in
from nhwc.recorder.state import StepGuard
from nhwc.recorder.storage import TensorReader

#: File descriptors, oneDNN's verbose level and the profiler are the process's own: a second thread waits its turn.
_ONE_AT_A_TIME = threading.RLock()


def record(
    step: nn.Module | Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Trace:
    """Run ``step(*inputs, **kwargs)`` once and return every operator call of it.

    ``step`` is a model (forward, and backward with ``options.train``) or any callable, such as a whole training step.
    Raises ModelError, with the original exception as its cause, where the step raises, and RecordingError where it
    cannot be recorded as ``options`` ask.

    >>> [call.name for call in record(nn.ReLU(), torch.ones(1)).calls]
    ['relu']
    """
    options = options or Options()
    with _ONE_AT_A_TIME:
        return _record(step, inputs, dict(kwargs or {}), options)


def _record(
    step: nn.Module | Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any], options: Options
) -> Trace:
    if isinstance(step, nn.Module) and is_compiled(step):
        return record_compiled(step, inputs, kwargs, options)
    return _Recording(step, inputs, kwargs, options).run()


@dataclass
class _Recording:
    step: nn.Module | Callable[..., Any]
    inputs: Sequence[Any]
    kwargs: dict[str, Any]
    options: Options
    tensors: TensorReader = field(default_factory=TensorReader)
    limits: list[str] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    #: Models in the order in which they were met, and what the paths below each begin with.
    roots: list[tuple[nn.Module, str]] = field(default_factory=list)
    states: list[OptimizerStateMeta] = field(default_factory=list)
    error: BaseException | None = None
    failed_call: int | None = None
    fake_state: dict[str, torch.Tensor] | None = None

    def run(self) -> Trace:
        fake = self._go_static() if self.options.static else None
        model = self.step if isinstance(self.step, nn.Module) else None
        correction = static.Correction() if fake is not None else None
        try:
            with contextlib.ExitStack() as stack:
                guard = stack.enter_context(StepGuard())
                modules = ModuleStack(on_root=lambda module: self._add_root(module, modules, guard))
                stack.enter_context(modules)
                self._watch(model, modules, guard)
                self._tell_compiled_in_place()
                self._name_inputs()
                device = device_of(self.roots[0][0] if self.roots else None, self.inputs)
                profiler = KernelProfiler(device)
                capture = self._library_capture(stack)
                recorder = CallRecorder(
                    modules, self.tensors, guard, capture, correct=correction, kernels_on=self.options.kernels_on
                )
                stack.enter_context(OptimizerWatch(self._on_step(guard, recorder), self._on_done(recorder)))
                input_metas = tuple(self.tensors.read(tensor) for tensor in tensors_in([self.inputs, self.kwargs]))
                recorder.inner = self._look_inside(stack, profiler)
                try:
                    with fake or contextlib.nullcontext(), recorder:
                        self._run_step()
                except Exception as error:  # noqa: BLE001 - the user's step may raise anything
                    self.error = error
                finally:
                    self.failed_call = recorder.forget_failure(self.error)
                library_output = capture.read() if capture is not None else b""
                parameters = self._parameters()
                for optimizer in self.optimizers:
                    self.states += state_layouts(optimizer, self._parameter_names())
                layouts = ranks.compare([root for root, _ in self.roots], self.options.process_group, self.limits)
            self._raise_unless_kept()
            calls = tuple(
                join(raw, profiler.insides.get(raw.call.index), library_output, ran=fake is None)
                for raw in recorder.raw
            )
            return Trace(
                target=self.options.target or _name_of(self.step),
                mode="static" if self.options.static else "eager",
                training=self.options.train or any(call.phase is Phase.BACKWARD for call in calls),
                environment=environment(device),
                calls=calls,
                inputs=input_metas,
                parameters=parameters,
                optimizer_states=tuple(self.states),
                ranks=layouts,
                layers=tuple(modules.layers.items()),
                limits=(*self.limits, *modules.unseen, *(correction.limits() if correction is not None else ())),
                confusions=tuple(modules.confusions),
                error=self._step_error(),
                kernels=recorder.kernels(),
            )
        finally:
            # the exception's traceback leads back here: in a cycle it would keep the step's activations alive
            self.error = None
            self.tensors.clear()

    def _tell_compiled_in_place(self) -> None:
        compiled = [
            module
            for root, _ in self.roots
            for module in root.modules()
            if getattr(module, "_compiled_call_impl", None)
        ]
        if compiled:
            self.limits.append(
                f"{len(compiled)} of the modules were compiled in place by module.compile(); they are recorded as they "
                "run in eager mode: pass torch.compile(model) to see the compiled graph"
            )

    def _go_static(self) -> Any:
        """Replace the model's state and the inputs by fake tensors; returns their mode."""
        if not isinstance(self.step, nn.Module):
            raise RecordingError("a static recording needs a model: pass the nn.Module and its inputs, not a callable")
        self.step = model = unwrap(self.step)
        fake = static.mode_of(model, self.inputs)
        self.fake_state = static.fake_state(fake, model)
        self.inputs = static.to_fake(fake, tuple(self.inputs))
        self.kwargs = static.to_fake(fake, self.kwargs)
        self.limits += static.LIMITS
        return fake

    def _watch(self, model: nn.Module | None, modules: ModuleStack, guard: StepGuard) -> None:
        """Name and remember what the step can change."""
        if model is not None:
            self._add_root(model, modules, guard)
            for parameter in model.parameters():
                parameter.grad = None
            return
        found = list(reachable(self.step))
        found_modules = [thing for thing in found if isinstance(thing, nn.Module)]
        # the largest comes first and gives the plain paths; a part of another model is no root
        for module in sorted(found_modules, key=lambda module: -sum(1 for _ in module.modules())):
            if not modules.knows(module):
                self._add_root(module, modules, guard)
        for thing in found:
            if isinstance(thing, Optimizer):
                guard.watch_optimizer(thing)
            elif isinstance(thing, GradScaler | LRScheduler):
                guard.watch_attributes(thing)
            elif isinstance(thing, torch.Generator):
                guard.watch_generator(thing)
            elif isinstance(thing, torch.Tensor):
                guard.watch_gradient(thing)

    def _add_root(self, module: nn.Module, modules: ModuleStack, guard: StepGuard) -> None:
        prefix = modules.add_root(module)
        self.roots.append((module, prefix))
        guard.watch_module(module)
        inner = unwrap(module)
        state = (
            self.fake_state
            if self.fake_state is not None
            else dict([*inner.named_parameters(), *inner.named_buffers()])
        )
        for name, tensor in state.items():
            if not is_lazy(tensor):
                self.tensors.give_name(tensor, _join_path(prefix, name))
        compiled = [name or "the model" for name, part in inner.named_modules() if is_compiled(part)]
        if compiled:
            self.limits.append(
                f"{', '.join(compiled)} is compiled, but ran in eager mode while operators were recorded"
            )
        lazy = [name for name, tensor in state.items() if is_lazy(tensor)]
        if lazy:
            self.limits.append(
                f"the step initialises {lazy[0]!r} and other lazy parameters, as any first call would: they stay"
            )

    def _run_step(self) -> None:
        if isinstance(self.step, nn.Module):
            run_model(self.step, self.inputs, self.kwargs, self.options, self.fake_state)
        else:
            self.step(*self.inputs, **self.kwargs)

    def _on_step(self, guard: StepGuard, recorder: CallRecorder) -> Callable[[Optimizer], None]:
        def before(optimizer: Optimizer) -> None:
            if not any(optimizer is known for known in self.optimizers):
                self.optimizers.append(optimizer)
            with torch.utils._python_dispatch._disable_current_modes():  # our bookkeeping is no part of the step
                guard.watch_optimizer(optimizer)
                self.states += state_layouts(optimizer, self._parameter_names())
            recorder.enter_optimizer(optimizer)

        return before

    def _on_done(self, recorder: CallRecorder) -> Callable[[Optimizer], None]:
        return lambda _optimizer: recorder.leave_optimizer()

    def _look_inside(self, stack: contextlib.ExitStack, profiler: KernelProfiler) -> bool:
        if not self.options.inner:
            self.limits.append("copies inside kernels were not looked for (inner=False)")
            return False
        stack.enter_context(profiler.running())
        if profiler.error is not None:
            self.limits.append(profiler.error)
        return profiler.error is None

    def _library_capture(self, stack: contextlib.ExitStack) -> Capture | None:
        if self.options.static:
            return None
        if not self.options.libraries:
            self.limits.append("reorders inside libraries were not looked for (libraries=False)")
            return None
        if not library.available():
            self.limits.append("this torch has no oneDNN: reorders inside libraries cannot be seen")
            return None
        capture = stack.enter_context(captured(1, library.without_verbose_lines))
        stack.enter_context(library.verbose())
        return capture

    def _name_inputs(self) -> None:
        named = [(str(position), value) for position, value in enumerate(self.inputs)]
        for label, value in [*named, *((repr(key), value) for key, value in self.kwargs.items())]:
            for tensor in tensors_in(value):
                self.tensors.give_name(tensor, f"input {label}")

    def _parameter_names(self) -> dict[int, str]:
        return {
            id(parameter): _join_path(prefix, name)
            for root, prefix in self.roots
            for name, parameter in unwrap(root).named_parameters()
        }

    def _parameters(self) -> tuple[ParameterMeta, ...]:
        found: list[ParameterMeta] = []
        for root, prefix in self.roots:
            inner = unwrap(root)
            kinds = {name: type(module).__name__ for name, module in inner.named_modules()}
            for name, parameter in inner.named_parameters():
                tensor = self.fake_state[name] if self.fake_state is not None else parameter
                if is_lazy(tensor):
                    continue
                gradient = None if tensor.grad is None else self.tensors.read(tensor.grad)
                kind = kinds.get(name.rpartition(".")[0], "")
                meta = self.tensors.read(tensor)
                found.append(ParameterMeta(_join_path(prefix, name), meta, gradient, kind, parameter.requires_grad))
        return tuple(found)

    def _raise_unless_kept(self) -> None:
        if self.error is None:
            return
        if isinstance(self.error, NhwcError):
            raise self.error
        refusal = static.refusal(self.error) if self.options.static else None
        if refusal is not None:
            raise refusal from self.error
        if "torch dispatch mode" in str(self.error):  # what torch.compile says of our mode where it must compile
            raise RecordingError(
                "the step calls torch.compile with fullgraph=True (flex_attention does), which torch refuses while its "
                "operators are recorded: compile the whole model instead, or record it without that part"
            ) from self.error
        if not self.options.keep_error:
            raise ModelError(f"the step raised {type(self.error).__name__}: {first_line(self.error)}") from self.error

    def _step_error(self) -> StepError | None:
        if self.error is None:
            return None
        return StepError(type(self.error).__name__, first_line(self.error), self.failed_call)


def _join_path(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _name_of(step: object) -> str:
    return type(step).__name__ if isinstance(step, nn.Module) else getattr(step, "__qualname__", type(step).__name__)
