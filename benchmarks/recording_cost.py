"""What recording costs: one training step of resnet50 at batch 8, plain against recorded without timing."""

from __future__ import annotations

import torch
from paired import alternate, arguments, interval, median_ratio, publish
from torchvision.models import resnet50

import nhwc


def main() -> None:
    options = arguments(__doc__, rounds=12)
    model = nhwc.convert(resnet50(weights=None))
    images = torch.randn(8, 3, 224, 224).to(memory_format=torch.channels_last)
    model.train()

    def plain() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        output = model(images)
        output.backward(torch.ones_like(output))

    samples = alternate({"plain": plain, "recorded": lambda: nhwc.record(model, images, train=True)}, options.rounds)
    ratio, low, high = interval(median_ratio, samples["recorded"], samples["plain"])
    publish(
        {
            "claim": "recorded / plain <= 1.5",
            "ratio": ratio,
            "interval_95": [low, high],
            "holds": high <= 1.5,
            "samples_ms": samples,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
