"""A fused optimizer whose parameter, gradient and state differ in strides: its updates are silently wrong."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import OptimizerStateMeta, Severity, TensorMeta
from nhwc.rules.flow import Flow
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import names_text


def _differ(shape: tuple[int, ...], mine: tuple[int, ...], other: tuple[int, ...] | None) -> bool:
    return other is not None and any(size > 1 and a != b for size, a, b in zip(shape, mine, other, strict=True))


def _mismatched(state: OptimizerStateMeta) -> bool:
    return state.fused and (
        _differ(state.shape, state.parameter_strides, state.state_strides)
        or _differ(state.shape, state.parameter_strides, state.gradient_strides)
    )


@rule("NH401", kind="numerics", severity=Severity.ERROR)
def find(flow: Flow) -> Iterator[Draft]:
    """A fused optimizer's state strides differ from its parameter's."""
    wrong = [state for state in flow.trace.optimizer_states if _mismatched(state)]
    for optimizer in sorted({state.optimizer for state in wrong}):
        states = [state for state in wrong if state.optimizer == optimizer]
        names = sorted({state.parameter for state in states})
        first = states[0]
        tensors = tuple(
            TensorMeta(first.shape, strides, "", "", -1, 0, 0)
            for strides in (first.parameter_strides, first.state_strides, first.gradient_strides)
            if strides is not None
        )
        yield Draft(
            None,
            f"{optimizer}.step",
            first.parameter.rpartition(".")[0],
            None,
            "optimizer",
            tensors,
            0,
            f"fused {optimizer} updates {names_text(names)} wrongly: it pairs parameter, gradient and state in memory, "
            f"and {first.key or 'the gradient'} lies in another order",
            "convert the state too, and again after loading a checkpoint: nhwc.convert(model, optimizer=optimizer)",
            calls=len(names),
            key=optimizer,
        )
