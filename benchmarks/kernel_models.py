"""Whole models: channels last with the kernels against contiguous without, and against channels last without.

Training steps in float32 (forward, backward from the mean of squares), detection in inference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torchvision
from paired import alternate, in_channels_last, medians_of, publish_models, ratio_of
from torch import nn
from unet3d import ResidualUNet3d

import nhwc

#: name → (model, inputs, whether it trains, what is claimed of the ratio).
Make = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


def _video() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return torchvision.models.video.r3d_18(), (torch.randn(1, 3, 16, 112, 112),)


def _flow(height: int, width: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    images = torch.randn(2, 1, 3, height, width)
    model = torchvision.models.optical_flow.raft_small()
    return model, (images[0], images[1])


def _segmentation() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    return model, (torch.randn(2, 3, 128, 128),)


def _detection() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, min_size=256)
    return model, (torch.rand(1, 3, 256, 256),)


MODELS: dict[str, tuple[Make, bool, float]] = {
    "residual U-Net 3-D": (lambda: (ResidualUNet3d(), (torch.randn(1, 1, 32, 64, 64),)), True, 1.2),
    "shufflenet_v2_x1_0": (
        lambda: (torchvision.models.shufflenet_v2_x1_0(), (torch.randn(8, 3, 224, 224),)),
        True,
        1.45,
    ),
    "r3d_18": (_video, True, 1.0),
    "deeplabv3_resnet50": (_segmentation, True, 1.0),
    "raft_small": (lambda: _flow(368, 496), True, 1.0),  # what it is trained on
    "raft_small, small images": (lambda: _flow(128, 160), True, 1.0),
    "fasterrcnn_resnet50_fpn": (_detection, False, 1.0),
}


def step(model: nn.Module, inputs: tuple[torch.Tensor, ...], train: bool) -> Callable[[], None]:
    """A training step without an optimizer, or a forward pass without gradients."""
    model.train(train)

    def training() -> None:
        model.zero_grad(set_to_none=True)
        output: Any = model(*inputs)
        output = output["out"] if isinstance(output, dict) else output
        output = output[-1] if isinstance(output, list) else output
        output.square().mean().backward()

    def inference() -> None:
        with torch.no_grad():
            model(*inputs)

    return training if train else inference


def compare(name: str, rounds: int) -> dict[str, object]:
    make, train, claim = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make()
    last = copy.deepcopy(model)
    nhwc.convert(last)
    converted = tuple(in_channels_last(each) for each in inputs)
    steps = {
        "contiguous": step(model, inputs, train),
        "channels_last": step(last, converted, train),
        "kernels": step(copy.deepcopy(last), converted, train),
    }
    samples = alternate(steps, rounds, around={"kernels": nhwc.kernels.use})
    row = {
        "model": name,
        "mode": "training" if train else "inference",
        "shapes": [tuple(each.shape) for each in inputs],
        "claim": claim,
        "ratio": ratio_of(samples["contiguous"], samples["kernels"]),
        "without_kernels": ratio_of(samples["contiguous"], samples["channels_last"]),
        "median_ms": medians_of(samples),
    }
    print(row, flush=True)
    return row


if __name__ == "__main__":
    publish_models(__doc__, "channels last with the kernels over contiguous without", MODELS, compare)
