"""Mixed precision: autocast, and the scaling of losses that float16 needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Autocast in ``amp`` ("bf16", "fp16" or None) on a device, with a scaler for fp16."""

    def __init__(self, amp: str | None, device: torch.device) -> None:
        self._device = device
        self._dtype = None if amp is None else _DTYPES[amp]
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._dtype is torch.float16)

    def autocast(self) -> torch.autocast:
        """A context for forward passes and the loss."""
        return torch.autocast(self._device.type, dtype=self._dtype, enabled=self._dtype is not None)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, scaled where that is needed."""
        scaled: Tensor = self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call, unused-ignore]

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """One optimizer step; left out where scaled gradients overflowed, and the scale is then halved."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return dict(self._scaler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a scale. A run without one leaves it, one that starts scaling begins as usual."""
        if self._scaler.is_enabled() and state:
            self._scaler.load_state_dict(state)
