"""Flatten before a Linear: convert(flatten=...) against convert without, both in channels last, in training steps.

What is saved is the copy of the image and of its gradient. Where the Linear is large, as in VGG, reading its weight
takes so much longer that no difference is claimed.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import torch
import torchvision
from kernel_models import step
from paired import alternate, arguments, in_channels_last, publish
from torch import nn

import nhwc
from nhwc.measure.stats import paired_ratio

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
    ratio = paired_ratio(samples["copied"], samples["turned"])
    row = {
        "model": name,
        "shape": shape,
        "claim": claim,
        "ratio": [round(value, 3) for value in (ratio.estimate, ratio.low, ratio.high)],
        "median_ms": {each: round(sorted(times)[len(times) // 2], 1) for each, times in samples.items()},
    }
    print(row, flush=True)
    return row


def main() -> None:
    options = arguments(__doc__, rounds=12)
    rows = list(map(functools.partial(compare, rounds=options.rounds), MODELS))
    publish(
        {
            "claim": "a training step with convert(flatten=...) over one without: at least the ratio in `claim`",
            "holds": {row["model"]: row["ratio"][0] >= row["claim"] for row in rows},  # type: ignore[index,operator]
            "results": rows,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
