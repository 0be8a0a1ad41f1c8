"""A default device that the user set is for the user's tensors: a kernel's own lie where its operands do."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels.conformance import canonical
from torchvision import ops

import nhwc

CALLS = {
    "instance_norm": lambda x: F.instance_norm(x),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "softmax": lambda x: x.softmax(1),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, 2),
    "fractional_max_pool": lambda x: F.fractional_max_pool2d(
        x, 2, 3, _random_samples=torch.rand(2, 6, 2, device="cpu")
    ),
    "cat": lambda x: torch.cat([x, x], 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "roll": lambda x: x.roll(1, 1),
    "indexing": lambda x: x[:, torch.tensor([1, 0], device="cpu")],
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "unfold": lambda x: F.unfold(x, 2),
    "mixed_pointwise": lambda x: x + x.contiguous() * 2,
    "conversion": lambda x: x.contiguous(),
    "grid_sample": lambda x: F.grid_sample(x, torch.zeros(2, 4, 4, 2, device="cpu"), align_corners=False),
}

BOX = torch.tensor([[0.0, 2.0, 2.0, 20.0, 20.0]])
for _name, _bins in (("roi_align", 2), ("roi_pool", 2), ("ps_roi_align", (1, 2)), ("ps_roi_pool", (1, 2))):
    CALLS[_name] = partial(getattr(ops, _name), boxes=BOX, output_size=_bins)


@pytest.mark.parametrize("kernel", CALLS)
def test_results_and_gradients_lie_on_the_cpu(kernel: str) -> None:
    x = canonical(torch.randn(2, 6, 30, 30)).requires_grad_()
    with nhwc.kernels.use(kernel), torch.device("meta"):
        result = CALLS[kernel](x)
        (gradient,) = torch.autograd.grad(result, x, torch.ones(result.shape, device="cpu"))
    assert result.device.type == "cpu"
    assert gradient.device.type == "cpu"
