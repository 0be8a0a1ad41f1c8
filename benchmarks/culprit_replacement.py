"""Whether the findings' milliseconds mean something: shufflenet's channel shuffles replaced by torch.channel_shuffle.

The audit says what the shuffles and all that follows from them cost; replacing them saves a measured time.
"""

from __future__ import annotations

import torch
import torchvision.models.shufflenetv2 as source
from paired import alternate, arguments, interval, median_difference, publish
from torchvision.models import shufflenet_v2_x1_0

import nhwc

BATCHES = (8, 32)


def measure(batch: int, rounds: int) -> dict[str, object]:
    model = nhwc.convert(shufflenet_v2_x1_0(weights=None)).eval()
    images = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
    original = source.channel_shuffle

    def run() -> None:
        with torch.no_grad():
            model(images)

    def replaced() -> None:
        source.channel_shuffle = torch.channel_shuffle
        try:
            run()
        finally:
            source.channel_shuffle = original

    report = nhwc.audit(model, images, repeats=15)
    samples = alternate({"original": run, "replaced": replaced}, rounds)
    saved, low, high = interval(median_difference, samples["original"], samples["replaced"])
    told = report.lost_ms or 0.0
    factor = max(told / saved, saved / told) if saved > 0 and told > 0 else float("inf")
    return {
        "batch": batch,
        "told_ms": told,
        "saved_ms": saved,
        "saved_interval_95": [low, high],
        "factor": factor,
        "holds": factor <= 1.5,
        "samples_ms": samples,
    }


def main() -> None:
    options = arguments(__doc__, rounds=40)
    results = [measure(batch, options.rounds) for batch in BATCHES]
    publish(
        {"claim": "within a factor of 1.5", "holds": all(result["holds"] for result in results), "results": results},
        options.output,
    )


if __name__ == "__main__":
    main()
