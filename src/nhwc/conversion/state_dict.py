"""State dicts for readers that look only at the raw storage."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from nhwc.formats import to_format
from nhwc.strides import CONTIGUOUS


def contiguous_state_dict(model: nn.Module) -> dict[str, Any]:
    """``model.state_dict()`` with every dense tensor contiguous and alone in its storage.

    Checkpoints keep strides, and readers that take a file's bytes as N, C, H, W (other frameworks, raw mappings)
    would read a channels-last weight scrambled. The model is left as it is; tensors that already lie so are shared
    with it, as in ``state_dict``; names that are one tensor in the model are one tensor here.

    >>> from torch import nn
    >>> model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    >>> contiguous_state_dict(model)["weight"].stride()
    (27, 9, 3, 1)
    """
    state: dict[str, Any] = model.state_dict()
    done: dict[tuple[object, ...], torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
            key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
            if value.data_ptr() == 0 or key not in done:
                done[key] = _alone(value)
            state[name] = done[key]
    return state


def _alone(value: torch.Tensor) -> torch.Tensor:
    result = to_format(value, CONTIGUOUS)
    if hasattr(type(value), "__tensor_flatten__"):
        return result
    if result.storage_offset() or result.untyped_storage().nbytes() != result.numel() * result.element_size():
        return result.clone(memory_format=torch.contiguous_format)
    return result
