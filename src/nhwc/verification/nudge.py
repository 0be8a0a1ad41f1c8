"""Values moved by about one rounding of their dtype: what no format can be blamed for is measured with them."""

from __future__ import annotations

import torch

from nhwc.variants import Setup
from nhwc.verification.run import named_inputs


def nudged(tensor: torch.Tensor, seed: int, rounding: float = 0.0) -> torch.Tensor:
    """``tensor`` times 1 ± epsilon, at random and the same in every memory format.

    rounding: a greater epsilon to use, such as that of autocast's dtype.
    """
    step = max(torch.finfo(tensor.dtype).eps, rounding)
    generator = torch.Generator().manual_seed(seed)
    move = (torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1) * step
    moved = (tensor.detach().double().cpu() * (1 + move)).to(tensor)
    return torch.empty_like(tensor).copy_(moved)


def nudge(setup: Setup, seed: int, rounding: float = 0.0) -> None:
    """Move every floating parameter and input of ``setup``, in place."""
    with torch.no_grad():
        tensors = [*setup.model.parameters(), *(tensor for _, tensor in named_inputs(setup))]
        for place, tensor in enumerate(tensors):
            if tensor.is_floating_point() and tensor.layout is torch.strided:
                tensor.copy_(nudged(tensor, seed * 100_003 + place, rounding))
