"""Pictures on their way to a model, on the CPU: nhwc.data against Pillow, ToTensor, Normalize, channels last.

Both begin with the same pictures and end with a normalised float32 batch in channels last, on one thread:
"collate" begins with decoded pictures of the model's size, "transform" with decoded photographs, which are cut and
resized at random first, "files" with the photographs as JPEG in memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import skimage.data
import torch
from paired import alternate, arguments, medians_of, publish, ratio_of
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms

from nhwc.data import collate, decode, normalize, train_transform
from nhwc.data.decoding import pixels_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224
BATCH = 64
#: The shorter side of a photograph, as ImageNet has it.
SHORTER = 375
PHOTOGRAPHS = (skimage.data.astronaut, skimage.data.chelsea, skimage.data.coffee, skimage.data.rocket)

Path = Callable[[], torch.Tensor]


def photographs() -> list[Image.Image]:
    made = []
    for number in range(BATCH):
        picture = Image.fromarray(PHOTOGRAPHS[number % len(PHOTOGRAPHS)]())
        scale = SHORTER / min(picture.size)
        made.append(picture.resize((round(picture.width * scale), round(picture.height * scale))))
    return made


def as_jpeg(picture: Image.Image) -> bytes:
    into = io.BytesIO()
    picture.save(into, "jpeg", quality=90)
    return into.getvalue()


def usual(read: Callable[[Any], Image.Image], sources: list[Any], cut: bool) -> Path:
    first = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()] if cut else []
    steps = transforms.Compose([*first, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def run() -> torch.Tensor:
        batch: torch.Tensor = default_collate([steps(read(each)) for each in sources])
        return batch.contiguous(memory_format=torch.channels_last)

    return run


def ours(read: Callable[[Any], Any], sources: list[Any]) -> Path:
    return lambda: normalize(collate([read(each) for each in sources]), MEAN, STD)


def paths() -> dict[str, tuple[Path, Path, float]]:
    """stage → the usual path, ours, and the least ratio that is claimed."""
    whole = photographs()
    small = [each.resize((SIZE, SIZE)) for each in whole]
    files = [as_jpeg(each) for each in whole]
    transform = train_transform(SIZE)
    return {
        "collate": (usual(lambda each: each, small, cut=False), ours(lambda each: each, small), 2.0),
        "transform": (
            usual(lambda each: each, whole, cut=True),
            ours(lambda each: transform(pixels_of(each)), whole),
            1.0,
        ),
        "files": (
            usual(lambda each: Image.open(io.BytesIO(each)).convert("RGB"), files, cut=True),
            ours(lambda each: transform(decode(each)), files),
            1.0,
        ),
    }


def compare(stage: str, first: Path, second: Path, claim: float, rounds: int) -> dict[str, Any]:
    samples = alternate({"usual": first, "nhwc": second}, rounds)
    row = {
        "stage": stage,
        "claim": claim,
        "ratio": ratio_of(samples["usual"], samples["nhwc"]),
        "images_per_s": {name: round(BATCH / sorted(times)[len(times) // 2] * 1e3) for name, times in samples.items()},
        "median_ms": medians_of(samples),
    }
    print(row, flush=True)
    return row


def main() -> None:
    options = arguments(__doc__, rounds=30)
    torch.set_num_threads(1)
    rows = [compare(stage, *path, options.rounds) for stage, path in paths().items()]
    publish(
        {
            "claim": "images/s of one core: at least the ratio in `claim`, whose interval excludes less than 1",
            "batch": BATCH,
            "size": SIZE,
            "holds": {row["stage"]: row["ratio"][0] >= row["claim"] and row["ratio"][1] >= 1 for row in rows},
            "results": rows,
        },
        options.output,
    )


if __name__ == "__main__":
    main()
