"""A gradient whose strides differ from its parameter's: DistributedDataParallel warns, fused optimizers go wrong."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import ParameterMeta, Severity
from nhwc.rules.flow import Flow
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import names_text


def _lie_apart(parameter: ParameterMeta) -> bool:
    """Whether the two hold their elements in another order (strides of size-1 dimensions aside)."""
    gradient = parameter.gradient
    return gradient is not None and any(
        size > 1 and mine != other
        for size, mine, other in zip(parameter.tensor.shape, parameter.tensor.strides, gradient.strides, strict=True)
    )


@rule("NH301", kind="risk", severity=Severity.WARNING)
def find(flow: Flow) -> Iterator[Draft]:
    """A gradient whose strides differ from its parameter's."""
    differing = [p for p in flow.trace.parameters if p.gradient is not None and p.gradient.strides != p.tensor.strides]
    for apart in (True, False):
        group = [p for p in differing if _lie_apart(p) is apart]
        if not group:
            continue
        names = names_text([p.name for p in group])
        first = group[0]
        assert first.gradient is not None
        what = "lie in another order than" if apart else "describe the same bytes by other strides than"
        yield Draft(
            None,
            "AccumulateGrad",
            first.name.rpartition(".")[0],
            None,
            "backward",
            (first.tensor, first.gradient),
            sum(p.tensor.nbytes for p in group) if apart else 0,
            f"gradients {what} their parameters: {names} (strides {first.gradient.strides} for {first.tensor.strides})",
            "nhwc.convert(model) before the optimizer and DistributedDataParallel see it: it gives canonical strides",
            severity=None if apart else Severity.NOTE,
            calls=len(group),
            key=apart,
        )
