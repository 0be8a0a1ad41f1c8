"""A step of a model under ``torch.compile``: what the profiler and the libraries tell of the compiled graph.

The dispatcher's mode cannot watch a compiled graph without changing it, so the calls are read from the profiler's event
tree: operators that the graph calls (convolutions, matrix products) with their operands' strides, copies inside their
kernels, and the fused kernels by name. Results, module paths and source lines are not in it.

Private interfaces, read from torch 2.11 to 2.14: OptimizedModule's ``_orig_mod``, and
torch._inductor.config.cpp.enable_kernel_profile, which makes fused kernels appear in a profile.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nhwc.errors import ModelError
from nhwc.machine import environment
from nhwc.model import Call, ParameterMeta, Phase, Reorder, StepError, TensorMeta, Trace
from nhwc.recorder import library
from nhwc.recorder.inner import KernelProfiler, event_meta, look_inside
from nhwc.recorder.modules import unwrap
from nhwc.recorder.output import captured
from nhwc.recorder.run import Options, device_of, first_line, run_model
from nhwc.recorder.state import StepGuard

_FUSED = re.compile(r"(cpp_|triton_).*fused|^triton_")
_OPERATOR = re.compile(r"^(?!autograd::|torch::autograd)[a-z_0-9]+::\w+$")
_COPIES = ("aten::clone", "aten::contiguous", "aten::copy_", "aten::_to_copy", "aten::to", "aten::reshape")


def is_compiled(model: nn.Module) -> bool:
    """Whether ``model`` is what ``torch.compile`` returns."""
    return isinstance(getattr(model, "_orig_mod", None), nn.Module)


@contextlib.contextmanager
def named_kernels() -> Iterator[None]:
    """Graphs compiled inside the block show their fused CPU kernels to the profiler by name."""
    import torch._inductor.config as inductor  # slow to import, needed for compiled models only

    with inductor.patch({"cpp.enable_kernel_profile": True}):
        yield


def record_compiled(model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> Trace:
    """Run a compiled model once, after a run that compiles it, and return what can be seen of it."""
    profiler = KernelProfiler(device_of(model, inputs))
    failure: StepError | None = None
    output = b""
    with contextlib.ExitStack() as stack:
        guard = stack.enter_context(StepGuard())
        guard.watch_module(model)
        _clear_gradients(model)
        try:
            with named_kernels():
                run_model(model, inputs, kwargs, options)
            _clear_gradients(model)
            if library.available() and options.libraries:
                capture = stack.enter_context(captured(1, library.without_verbose_lines))
                stack.enter_context(library.verbose())
            else:
                capture = None
            with profiler.running():
                run_model(model, inputs, kwargs, options)
            output = capture.read() if capture is not None else b""
        except Exception as error:
            failure = StepError(type(error).__name__, first_line(error))
            if not options.keep_error:
                raise ModelError(f"the compiled step raised {failure.type}: {failure.message}") from error
        parameters = _parameters(model)
    calls = _with_reorders(_calls(profiler.roots), output, {parameter.tensor.shape for parameter in parameters})
    fused = [call.operator for call in calls if call.operator.startswith("inductor.")]
    limits = [
        f"torch.compile fuses operators: of {len(fused)} fused kernels only the names are seen, not copies or strides",
        "a compiled graph tells no module paths, source lines or results of its operators",
    ]
    copying = sorted({name.removeprefix("inductor.") for name in fused if "clone" in name or "copy" in name})
    if copying:
        limits.append(f"fused kernels whose names tell of a copy: {', '.join(copying)}")
    if profiler.error is not None:
        limits.append(profiler.error)
    return Trace(
        target=options.target or type(unwrap(model)).__name__,
        mode="compiled",
        training=options.train,
        environment=environment(device_of(model, inputs)),
        calls=tuple(calls),
        parameters=parameters,
        limits=tuple(limits),
        error=failure,
        kernels=options.kernels_on(),
    )


def _clear_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def _parameters(model: nn.Module) -> tuple[ParameterMeta, ...]:
    found = []
    for position, (name, tensor) in enumerate(unwrap(model).named_parameters()):
        gradient = None if tensor.grad is None else _meta(tensor.grad, -1)
        found.append(
            ParameterMeta(name, replace(_meta(tensor, position), name=name), gradient, trainable=tensor.requires_grad)
        )
    return tuple(found)


def _meta(tensor: torch.Tensor, storage: int) -> TensorMeta:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorMeta(
        tuple(tensor.shape), tuple(tensor.stride()), dtype, str(tensor.device), storage, 0, tensor.element_size()
    )


def _calls(roots: Sequence[Any]) -> list[Call]:
    calls: list[Call] = []
    # an explicit stack, in order: a deep graph must not meet Python's recursion limit
    pending = [(event, False) for event in reversed(roots)]
    while pending:
        event, backward = pending.pop()
        name = event.name
        backward = backward or name.startswith("autograd::engine") or "Backward" in name
        if _FUSED.search(name) or _OPERATOR.match(name):
            calls.append(_call(len(calls), event, Phase.BACKWARD if backward else Phase.FORWARD))
            continue
        pending.extend((child, backward) for child in reversed(event.children))
    return calls


def _call(index: int, event: Any, phase: Phase) -> Call:
    fused = _FUSED.search(event.name) is not None
    operator = f"inductor.{event.name}" if fused else event.name.replace("::", ".")
    values = getattr(event.typed[1], "inputs", ())
    inputs = tuple(
        event_meta(value)
        for item in values
        for value in (item if isinstance(item, list) else [item])
        if hasattr(value, "strides")
    )
    # storage addresses are used again after a tensor dies, so that every operand is taken for memory of its own
    inputs = tuple(replace(meta, storage=-2 - place) for place, meta in enumerate(inputs))
    copies = tuple(copy for copy, _, _ in look_inside(event).copies)
    outputs: tuple[TensorMeta, ...] = ()
    if event.name in _COPIES and copies:
        outputs = (copies[-1].target,)
    return Call(
        index,
        operator,
        "" if fused else event.name,
        inputs,
        outputs,
        phase,
        "",
        "",
        None,
        copies=copies,
        ms=event.duration_time_ns / 1e6,
    )


def _with_reorders(calls: list[Call], output: bytes, weights: set[tuple[int, ...]]) -> list[Call]:
    """Reorders given to the convolution that oneDNN runs next; a shape that only weights have names the operand."""
    convolutions = [
        call.index for call in calls if "convolution" in call.operator and not call.operator.startswith("inductor.")
    ]
    found: dict[int, list[Reorder]] = {}
    done = 0
    for line in output.splitlines():
        if b",exec," in line and b",convolution," in line:
            done = min(done + 1, max(len(convolutions) - 1, 0))
            continue
        reorder = library.parse_reorder(line)
        if reorder is not None and convolutions:
            weight = next((shape for shape in weights if library.same_shape(reorder.shape, shape)), None)
            shapes = {} if weight is None else {"weights": weight}
            found.setdefault(convolutions[done], []).append(library.name_operand(reorder, shapes))
    return [replace(call, reorders=tuple(found.get(call.index, ()))) for call in calls]
