"""The exponential moving average of a model's weights, as a second model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Average:
    """A model whose parameters and floating buffers follow those of another.

    model: the average; a copy made before the model was wrapped, on the same device and in the same format, sharded in
    the same way where that was. decay: what stays of the average at each step.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model.eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, source: nn.Module, steps: int) -> None:
        """Take in the weights of ``source`` after optimizer step ``steps`` (from 1).

        The first steps weigh more, so that the random weights of the beginning are soon forgotten.
        """
        decay = min(self.decay, (1 + steps) / (10 + steps))
        for average, current in zip(_tensors(self.model), _tensors(source), strict=True):
            if average.is_floating_point():
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(current)


def _tensors(model: nn.Module) -> list[Tensor]:
    found = [*model.parameters(), *model.buffers()]
    return [each.to_local() if isinstance(each, DTensor) else each.detach() for each in found]
