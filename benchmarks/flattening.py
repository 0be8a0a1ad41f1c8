"""Flatten before a Linear: convert(flatten=...) against convert without, both in channels last, in training steps.

What is saved is the copy of the image and of its gradient. Where the Linear is large, as in VGG, reading its weight
takes so much longer that no difference is claimed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torchvision
from kernel_models import step
from paired import alternate, in_channels_last, medians_of, publish_models, ratio_of
from torch import nn

import nhwc

Make = Callable[[], nn.Module]


def _small_head() -> nn.Module:
    return nn.Sequential(nn.Conv2d(16, 64, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 56 * 56, 10))


#: name → (model, shape of its input, the least ratio that is claimed).
MODELS: dict[str, tuple[Make, tuple[int, ...], float]] = {
    "small head": (_small_head, (16, 16, 56, 56), 1.05),
    "alexnet": (torchvision.models.alexnet, (8, 3, 224, 224), 0.97),
    "vgg11_bn": (torchvision.models.vgg11_bn, (2, 3, 224, 224), 0.97),
}


def compare(name: str, rounds: int) -> dict[str, object]:
    make, shape, claim = MODELS[name]
    torch.manual_seed(0)
    plain, inputs = make(), torch.randn(shape)
    turned = nhwc.convert(copy.deepcopy(plain), flatten=inputs[:2])
    nhwc.convert(plain)
    converted = (in_channels_last(inputs),)
    samples = alternate({"copied": step(plain, converted, True), "turned": step(turned, converted, True)}, rounds)
    row = {
        "model": name,
        "shape": shape,
        "claim": claim,
        "ratio": ratio_of(samples["copied"], samples["turned"]),
        "median_ms": medians_of(samples),
    }
    print(row, flush=True)
    return row


if __name__ == "__main__":
    publish_models(__doc__, "a training step with convert(flatten=...) over one without", MODELS, compare)
