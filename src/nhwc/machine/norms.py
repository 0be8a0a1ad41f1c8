"""Whether torch's own instance norm gives right gradients here, told by running it."""

from __future__ import annotations

import torch
from torch.nn import functional

_SHAPE = (1, 16, 12, 10)


def instance_norm_errs() -> bool:
    """Whether the gradient for one contiguous image is another where the incoming one is in channels last.

    Runs two thousand numbers on the CPU, forward and twice backward, with random numbers of its own.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    image, incoming = (
        torch.randn(_SHAPE, generator=generator, dtype=torch.float32, device="cpu").contiguous() for _ in range(2)
    )
    with torch.inference_mode(False), torch.enable_grad():
        image = image.clone().requires_grad_()
        result = functional.instance_norm(image)
        (right,) = torch.autograd.grad(result, image, incoming.clone(), retain_graph=True)
        (found,) = torch.autograd.grad(result, image, incoming.clone(memory_format=torch.channels_last))
    return not torch.allclose(found, right, rtol=1e-3, atol=1e-3)
