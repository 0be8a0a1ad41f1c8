"""A step of which one pass alone runs with the kernels on: its gradients are torch's own, whichever pass that is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name

import nhwc

torchvision = pytest.importorskip("torchvision")

Call = Callable[[torch.Tensor], torch.Tensor]

IMAGE, VOLUME = (2, 8, 12, 10), (2, 8, 6, 8, 10)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
BOXES = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 1, 9, 9]])
REGIONS = torch.ops.torchvision


def random(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def deformed(x: torch.Tensor) -> torch.Tensor:
    return torchvision.ops.deform_conv2d(x, random(2, 18, 12, 10), random(4, 8, 3, 3), padding=1)


IMAGES: dict[str, Call] = {
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, 5),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 5),
    "fractional_max_pool": lambda x: F.fractional_max_pool2d(x, 2, 5, _random_samples=torch.full((2, 8, 2), 0.3)),
    "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "instance_norm": F.instance_norm,
    "group_norm": lambda x: F.group_norm(x, 4),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "grid_sample": lambda x: F.grid_sample(x, random(2, 5, 5, 2), align_corners=False),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "reflect": lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
    "replicate": lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"),
    "circular": lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "index": lambda x: x[:, [1, 1, 0, 5]],
    "roll": lambda x: x.roll(2, 1),
    "cat": lambda x: torch.cat([x, x.contiguous()], 1),
    "roi_align": lambda x: REGIONS.roi_align(x, BOXES, 1.0, 3, 3, 2, False),
    "roi_pool": lambda x: REGIONS.roi_pool(x, BOXES, 1.0, 3, 3)[0],
    "ps_roi_align": lambda x: REGIONS.ps_roi_align(x, BOXES, 1.0, 2, 2, 2)[0],
    "ps_roi_pool": lambda x: REGIONS.ps_roi_pool(x, BOXES, 1.0, 2, 2)[0],
    "deform_conv2d": deformed,
    "unfold": lambda x: F.unfold(x, 3),
    "silu": F.silu,
}
VOLUMES: dict[str, Call] = {
    "adaptive_max_pool": lambda x: F.adaptive_max_pool3d(x, 3),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool3d(x, 3),
    "avg_pool": lambda x: F.avg_pool3d(x, 2),
    "fractional_max_pool": lambda x: F.fractional_max_pool3d(x, 2, 3, _random_samples=torch.full((2, 8, 3), 0.3)),
    "max_unpool": lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2),
    "instance_norm": F.instance_norm,
    "group_norm": lambda x: F.group_norm(x, 4),
    "grid_sample": lambda x: F.grid_sample(x, random(2, 3, 4, 5, 3), align_corners=False),
    "trilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="trilinear"),
    "reflect": lambda x: F.pad(x, (1,) * 6, mode="reflect"),
    "conv": lambda x: F.conv3d(x, random(4, 8, 3, 3, 3), padding=1),
    "conv_transpose": lambda x: F.conv_transpose3d(x, random(8, 4, 3, 3, 3), stride=2),
}
CASES = [(f"{name}, 2-D", call, IMAGE) for name, call in IMAGES.items()]
CASES += [(f"{name}, 3-D", call, VOLUME) for name, call in VOLUMES.items()]


@pytest.mark.parametrize("incoming", ["contiguous", "channels last"])
@pytest.mark.parametrize(("call", "shape"), [each[1:] for each in CASES], ids=[each[0] for each in CASES])
def test_one_pass_inside_a_block(call: Call, shape: tuple[int, ...], incoming: str) -> None:
    values = random(*shape)
    plain = values.clone().requires_grad_()
    result = call(plain)
    grad = torch.linspace(-1, 1, result.numel()).view(result.shape)
    (wanted,) = torch.autograd.grad(result, plain, grad)
    if incoming == "channels last" and grad.dim() in FORMATS:
        grad = grad.to(memory_format=FORMATS[grad.dim()])
    for inside in ("forward", "backward"):
        leaf = values.clone().to(memory_format=FORMATS[len(shape)]).requires_grad_()
        with nhwc.kernels.use() if inside == "forward" else contextlib.nullcontext():
            result = call(leaf)
        with nhwc.kernels.use() if inside == "backward" else contextlib.nullcontext():
            (found,) = torch.autograd.grad(result, leaf, grad)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4, msg=lambda said, way=inside: f"{way}: {said}")
