"""Composite operators made one call again from the calls that they were recorded as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nhwc.model import Call, TensorMeta


def composite(calls: Sequence[Call], at: int) -> Call | None:
    """The call of the composite operator that ``calls[at]`` is a part of; None for those that are not known here.

    calls: those of a trace. Known is instance_norm, by the copy of its input.
    """
    if calls[at].caller == "aten::instance_norm" and calls[at].name == "clone":
        return _instance_norm(calls, at)
    return None


def _instance_norm(calls: Sequence[Call], at: int) -> Call | None:
    """torch composes it of a batch norm over one image of N * C channels, with everything of C channels repeated."""
    norm = next((call for call in calls[at:] if call.name in {"native_batch_norm", "cudnn_batch_norm"}), None)
    if norm is None or norm.caller != "aten::instance_norm" or len(norm.arguments) < 8:
        return None
    image = calls[at].inputs[0]
    inputs: list[TensorMeta] = [image]
    operands: list[object] = [{"tensor": 0}]
    for value in norm.arguments[1:5]:
        if value is None:
            operands.append(None)
            continue
        assert isinstance(value, dict)
        repeated = norm.inputs[value["tensor"]]
        operands.append({"tensor": len(inputs)})
        inputs.append(replace(repeated, shape=(image.shape[1],), strides=(1,), offset=0))
    training, momentum, eps = norm.arguments[5:8]
    return replace(
        calls[at],
        operator="aten.instance_norm.default",
        inputs=tuple(inputs),
        arguments=(*operands, training, momentum, eps, True),
        keywords=(),
    )
