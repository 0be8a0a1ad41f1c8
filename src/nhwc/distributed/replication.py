"""DistributedDataParallel for models in channels last: no stride warning, no gradient copied for its layout."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nhwc.conversion import broadcast_alone, follow_gradients, is_converted
from nhwc.distributed.layouts import require_same_layouts
from nhwc.distributed.wrappers import require_group, require_plain
from nhwc.errors import DistributedError
from nhwc.strides import CONTIGUOUS, LayoutKind, layout, strides_for


def data_parallel(model: nn.Module, **ddp_options: Any) -> DistributedDataParallel:
    """``model`` in DistributedDataParallel, checked and prepared for channels last. Call ``nhwc.convert`` before it.

    - All ranks must hold the same layouts: see ``require_same_layouts``.
    - Gradients are views into the buckets that travel (``gradient_as_bucket_view=True``), in the strides of their
      parameters.
    - The gradient of a weight that is contiguous and channels last at once (1x1, depthwise, one input channel) gets
      that weight's strides, for free: no warning about "bucket view strides", and no copy. A weight of that kind that
      is broadcast alone gets contiguous strides, since torch's constructor raises on others.

    ddp_options: those of DistributedDataParallel. ``no_sync`` and the rest of it work as usual.

    Raises DistributedError without a process group, for a model that is wrapped, lazy or without a gradient to
    reduce, for unknown options, and where the ranks' layouts differ. The model is then as before.
    """
    require_group("data_parallel")
    require_plain(model, "data_parallel")
    _require_options(ddp_options)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise DistributedError("data_parallel: no parameter requires a gradient, so there is none to reduce")
    require_same_layouts(model, ddp_options.get("process_group"))
    options = {"gradient_as_bucket_view": True, "device_ids": _device_ids(model), **ddp_options}
    with ExitStack() as undo:
        _prepare(model, undo)
        wrapped = DistributedDataParallel(model, **options)
        undo.pop_all()
    return wrapped


def _require_options(options: dict[str, Any]) -> None:
    known = [name for name in inspect.signature(DistributedDataParallel).parameters if name != "module"]
    for name in options:
        if name not in known:
            raise DistributedError(
                f"data_parallel: DistributedDataParallel has no option {name!r}; it has {', '.join(known)}"
            )


def _device_ids(model: nn.Module) -> list[torch.device] | None:
    devices = {parameter.device for parameter in model.parameters()}
    return list(devices) if len(devices) == 1 and next(iter(devices)).type == "cuda" else None


def _prepare(model: nn.Module, undo: ExitStack) -> None:
    """Let each ambiguous weight and its gradient agree on strides, whoever put the model into channels last."""
    alone = broadcast_alone(model.parameters(), model.buffers())
    ambiguous = [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if parameter.dim() in (4, 5) and layout(parameter.shape, parameter.stride()).kind is LayoutKind.AMBIGUOUS
    ]
    for _, parameter in ambiguous:
        if id(parameter) in alone:
            undo.callback(setattr, parameter, "data", parameter.data)
            parameter.data = parameter.data.as_strided(parameter.shape, strides_for(parameter.shape, CONTIGUOUS))
    converted = is_converted(model)
    follow_gradients(model, [name for name, parameter in ambiguous if not converted or id(parameter) in alone], undo)
