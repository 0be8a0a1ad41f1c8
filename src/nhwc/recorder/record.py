"""Run a model or a step once and return its Trace: the three levels joined, everything put back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from nhwc.errors import ModelError, RecordingError
from nhwc.model import Call, InnerCopy, OptimizerStateMeta, ParameterMeta, Phase, RankLayout, StepError, TensorMeta, Trace
from nhwc.recorder import library, static
from nhwc.recorder.compiled import is_compiled, record_compiled
from nhwc.recorder.dispatch import CallRecorder, RawCall
from nhwc.recorder.environment import environment
from nhwc.recorder.inner import Inside, KernelProfiler
from nhwc.recorder.modules import ModuleStack, unwrap
from nhwc.recorder.optimizers import OptimizerWatch, state_layouts
from nhwc.recorder.output import Capture, captured
from nhwc.recorder.ranks import gather_layouts
from nhwc.recorder.run import Options, device_of, first_line, run_model, tensors_in
from nhwc.recorder.state import StepGuard, reachable
from nhwc.recorder.storage import StorageIds


def record(
    step: nn.Module | Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Trace:
    """Run ``step(*inputs, **kwargs)`` once and return every operator call of it.

    ``step`` is a model (forward, and backward with ``options.train``) or any callable, such as a whole training step.
    Raises ModelError, with the original exception as its cause, where the step raises.
    """
    options = options or Options()
    if isinstance(step, nn.Module) and is_compiled(step):
        return record_compiled(step, inputs, dict(kwargs or {}), options)
    return _Recording(step, inputs, dict(kwargs or {}), options).run()


@dataclass
class _Recording:
    step: nn.Module | Callable[..., Any]
    inputs: Sequence[Any]
    kwargs: dict[str, Any]
    options: Options
    names: dict[int, str] = field(default_factory=dict)
    storages: StorageIds = field(default_factory=StorageIds)
    limits: list[str] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    roots: list[nn.Module] = field(default_factory=list)
    states: list[OptimizerStateMeta] = field(default_factory=list)
    error: BaseException | None = None

    def run(self) -> Trace:
        model = self.step if isinstance(self.step, nn.Module) else None
        fake = static.mode_of(model or nn.Module(), self.inputs) if self.options.static else None
        fake_state: dict[str, torch.Tensor] | None = None
        if fake is not None:
            if model is None:
                raise RecordingError("a static recording needs a model: pass the nn.Module and its inputs, not a callable")
            self.limits += static.LIMITS
            fake_state = static.fake_state(fake, model)
            self.inputs = static.to_fake(fake, tuple(self.inputs))
            self.kwargs = static.to_fake(fake, self.kwargs)
        device = device_of(model, self.inputs)
        profiler = KernelProfiler()
        with contextlib.ExitStack() as stack:
            guard = stack.enter_context(StepGuard())
            modules = stack.enter_context(ModuleStack(model, on_root=self._on_root(guard)))
            if model is not None:
                self._name_state(model, fake_state)
                self.roots.append(model)
                guard.watch_module(model)
                _clear_gradients(model)
            else:
                self._watch_reachable(guard, modules)
            self._name_inputs()
            capture = self._library_capture(stack, fake is not None)
            recorder = CallRecorder(modules, self.names.get, self.storages, capture)
            stack.enter_context(OptimizerWatch(self._on_step(guard, recorder), self._on_done(recorder)))
            input_metas = tuple(recorder._meta(tensor) for tensor in tensors_in([self.inputs, self.kwargs]))
            if not self.options.inner:
                recorder.inner = False
                self.limits.append("copies inside kernels were not looked for (inner=False)")
            else:
                stack.enter_context(profiler.running())
                recorder.inner = profiler.error is None
            try:
                with fake or contextlib.nullcontext(), recorder:
                    self._run_step(fake_state)
            except Exception as error:
                self.error = error
            library_output = capture.read() if capture is not None else b""
            parameters = self._parameters(recorder, fake_state)
            for optimizer in self.optimizers:
                self.states += state_layouts(optimizer, self._parameter_names())
            ranks = self._ranks(model)
            layers = tuple(modules.layers.items())
        if profiler.error is not None:
            self.limits.append(profiler.error)
        if self.error is not None and not self.options.keep_error:
            raise ModelError(f"the step raised {type(self.error).__name__}: {first_line(self.error)}") from self.error
        calls = tuple(_join(raw, profiler.insides.get(raw.call.index), library_output) for raw in recorder.raw)
        self.storages.clear()
        return Trace(
            target=self.options.target or _name_of(self.step),
            mode="static" if self.options.static else "eager",
            training=self.options.train or any(call.phase is Phase.BACKWARD for call in calls),
            environment=environment(device),
            calls=calls,
            inputs=input_metas,
            parameters=parameters,
            optimizer_states=tuple(self.states),
            ranks=ranks,
            layers=layers,
            limits=tuple(self.limits),
            confusions=tuple(modules.confusions),
            error=self._step_error(recorder),
        )

    def _run_step(self, fake_state: Mapping[str, torch.Tensor] | None) -> None:
        if not isinstance(self.step, nn.Module):
            self.step(*self.inputs, **self.kwargs)
            return
        run_model(self.step, self.inputs, self.kwargs, self.options, fake_state)

    def _on_root(self, guard: StepGuard) -> Callable[[nn.Module], None]:
        def watch(module: nn.Module) -> None:
            self._name_state(module, None)
            self.roots.append(module)
            guard.watch_module(module)

        return watch

    def _watch_reachable(self, guard: StepGuard, modules: ModuleStack) -> None:
        for thing in reachable(self.step):
            if isinstance(thing, nn.Module):
                if not any(thing is root for root in self.roots):
                    modules.add_root(thing)
                    self._on_root(guard)(thing)
            else:
                guard.watch_optimizer(thing)

    def _on_step(self, guard: StepGuard, recorder: CallRecorder) -> Callable[[Optimizer], None]:
        def before(optimizer: Optimizer) -> None:
            if not any(optimizer is known for known in self.optimizers):
                self.optimizers.append(optimizer)
            with _paused(recorder):
                guard.watch_optimizer(optimizer)
                self.states += state_layouts(optimizer, self._parameter_names())
            recorder.phase_override = Phase.OPTIMIZER

        return before

    def _on_done(self, recorder: CallRecorder) -> Callable[[Optimizer], None]:
        def after(_optimizer: Optimizer) -> None:
            recorder.phase_override = None

        return after

    def _library_capture(self, stack: contextlib.ExitStack, fake: bool) -> Capture | None:
        if fake or not self.options.libraries:
            if not fake:
                self.limits.append("reorders inside libraries were not looked for (libraries=False)")
            return None
        if not library.available():
            self.limits.append("this torch has no oneDNN: reorders inside libraries cannot be seen")
            return None
        capture = stack.enter_context(captured(1, library.is_verbose_line))
        stack.enter_context(library.verbose())
        return capture

    def _name_state(self, model: nn.Module, fake_state: Mapping[str, torch.Tensor] | None) -> None:
        inner = unwrap(model)
        pairs = fake_state.items() if fake_state is not None else [*inner.named_parameters(), *inner.named_buffers()]
        for name, tensor in pairs:
            self.names.setdefault(self.storages.of(tensor), name)

    def _name_inputs(self) -> None:
        for position, value in enumerate(self.inputs):
            for tensor in tensors_in(value):
                self.names.setdefault(self.storages.of(tensor), f"input {position}")
        for key, value in self.kwargs.items():
            for tensor in tensors_in(value):
                self.names.setdefault(self.storages.of(tensor), f"input {key!r}")

    def _parameter_names(self) -> dict[int, str]:
        return {id(parameter): name for root in self.roots for name, parameter in unwrap(root).named_parameters()}

    def _parameters(self, recorder: CallRecorder, fake_state: Mapping[str, torch.Tensor] | None) -> tuple[ParameterMeta, ...]:
        found: list[ParameterMeta] = []
        for root in self.roots:
            inner = unwrap(root)
            kinds = {name: type(module).__name__ for name, module in inner.named_modules()}
            for name, parameter in inner.named_parameters():
                tensor = fake_state[name] if fake_state is not None else parameter
                gradient = None if tensor.grad is None else recorder._meta(tensor.grad)
                kind = kinds.get(name.rpartition(".")[0], "")
                found.append(ParameterMeta(name, recorder._meta(tensor), gradient, kind, parameter.requires_grad))
        return tuple(found)

    def _ranks(self, model: nn.Module | None) -> tuple[RankLayout, ...]:
        if not distributed.is_available() or not distributed.is_initialized():
            return ()
        wrapped = next((root for root in self.roots if isinstance(root, DistributedDataParallel)), None)
        if wrapped is not None:
            return gather_layouts(unwrap(wrapped), self.options.process_group or wrapped.process_group)
        if self.options.process_group is not None and model is not None:
            return gather_layouts(model, self.options.process_group)
        self.limits.append("a process group exists but the ranks' layouts were not compared: pass process_group= on every rank")
        return ()

    def _step_error(self, recorder: CallRecorder) -> StepError | None:
        if self.error is None:
            return None
        call = recorder.failed[0] if recorder.failed is not None and recorder.failed[1] is self.error else None
        return StepError(type(self.error).__name__, first_line(self.error), call)


def _clear_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


@contextlib.contextmanager
def _paused(recorder: CallRecorder) -> Iterator[None]:
    """Our own bookkeeping inside a step is not part of the step."""
    with torch.utils._python_dispatch._disable_current_modes():
        yield


def _name_of(step: object) -> str:
    return type(step).__name__ if isinstance(step, nn.Module) else getattr(step, "__qualname__", type(step).__name__)


def _join(raw: RawCall, inside: Inside | None, library_output: bytes) -> Call:
    """One call with what the profiler and the library said of it."""
    call = raw.call
    reorders = library.between(library_output, raw.output_start, raw.output_end)
    if reorders:
        reorders = [library.name_operand(reorder, _operand_shapes(call)) for reorder in reorders]
    if inside is None:
        return replace(call, caller=call.operator, reorders=tuple(reorders))
    by_address = {address: meta for address, meta in zip(raw.addresses, call.inputs, strict=True) if address}
    copies = [
        replace(copy, source=_identify(copy.source, by_address.get(source)), target=_identify(copy.target, by_address.get(target)))
        for copy, target, source in inside.copies
    ]
    return replace(call, caller=inside.caller, copies=tuple(copies), reorders=tuple(reorders), ms=inside.ms)


def _identify(meta: TensorMeta, operand: TensorMeta | None) -> TensorMeta:
    return meta if operand is None else replace(meta, storage=operand.storage, name=operand.name)


def _operand_shapes(call: Call) -> dict[str, tuple[int, ...]]:
    """Shapes of a convolution's operands by oneDNN's names for them."""
    shapes = [meta.shape for meta in call.inputs]
    if call.name == "convolution_backward" and len(shapes) >= 3:
        return {"dst": shapes[0], "src": shapes[1], "weights": shapes[2]}
    named = dict(zip(("src", "weights"), shapes, strict=False))
    if call.outputs:
        named["dst"] = call.outputs[0].shape
    return named
