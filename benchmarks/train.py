"""Training from JPEG files: nhwc's program in channels last against the usual loop of torchvision in contiguous.

The usual loop decodes, crops, flips, transposes and normalises on the CPU (torchvision's ImageFolder and transforms,
torch's DataLoader), and keeps everything in N, C, H, W. Both read the same files, crop to the same size, use the same
batch, workers, optimizer and model, and say loss and accuracy at every step. A sample is the mean step of a run of its
own, without its first two steps; the runs alternate.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import torch
import torchvision
from paired import alternate_samples, arguments, medians_of, publish, ratio_of
from photographs import write_folder
from torch import nn
from torchvision import transforms

from nhwc.api import train
from nhwc.training import StepRecord, TrainSettings

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0")
BATCH, SIZE, WORKERS = 8, 160, 1
WARMING, STEPS = 2, 4
EACH, FILE_SIZE = 24, (375, 500)  # photographs of each kind, and their size, which is the usual one of ImageNet
CLAIM, MEAN_CLAIM = 1.0, 1.2
PARTS = ("data", "forward", "backward", "optimizer")

Shares = dict[str, float]


def model_of(name: str, classes: int) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes)
    return model


class Times:
    """A sink of a run that keeps the time of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def step(self, record: StepRecord) -> None:
        self.seconds.append(record.time_s)

    def note(self, text: str) -> None: ...

    def advance(self, stage: str, done: int, total: int) -> None: ...

    def evaluation(self, record: object) -> None: ...

    def close(self) -> None: ...


def ours(name: str, folder: Path, shares: list[Shares]) -> float:
    """Milliseconds of a step of ``nhwc train``."""
    times = Times()
    settings = TrainSettings(
        str(folder),
        batch=BATCH,
        size=SIZE,
        workers=WORKERS,
        max_steps=WARMING + STEPS,
        print_every=1,
        channels_last="true",
    )
    report = train(partial(model_of, name), settings, sinks=[times])
    shares.append({part: report.shares.share(part) or 0.0 for part in (*PARTS, "communication")})
    return 1e3 * fmean(times.seconds[WARMING:])


def usual(name: str, folder: Path, shares: list[Shares]) -> float:
    """Milliseconds of a step of the usual loop."""
    pipeline = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    dataset = torchvision.datasets.ImageFolder(str(folder), pipeline)
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=WORKERS, drop_last=True)
    model = model_of(name, len(dataset.classes)).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    batches = iter(loader)
    spent = dict.fromkeys(PARTS, 0.0)
    seconds = []
    for _ in range(WARMING + STEPS):
        marks = [time.perf_counter()]
        images, targets = next(batches)
        marks.append(time.perf_counter())
        output = model(images)
        loss = criterion(output, targets)
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        loss.item()
        output.topk(5, 1).indices.eq(targets[:, None]).sum().item()
        seconds.append(time.perf_counter() - marks[0])
        for part, start, end in zip(PARTS, marks, marks[1:], strict=False):
            spent[part] += end - start
    shares.append({part: value / sum(spent.values()) for part, value in spent.items()})
    return 1e3 * fmean(seconds[WARMING:])


def compare(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    shares: dict[str, list[Shares]] = {"usual": [], "nhwc": []}
    runs: dict[str, Callable[[], float]] = {
        "usual": lambda: usual(name, folder, shares["usual"]),
        "nhwc": lambda: ours(name, folder, shares["nhwc"]),
    }
    samples = alternate_samples(runs, rounds)
    row = {
        "model": name,
        "ratio": ratio_of(samples["usual"], samples["nhwc"]),
        "images_per_s": {each: round(1e3 * BATCH / value, 1) for each, value in medians_of(samples).items()},
        "shares": {each: _mean_shares(several) for each, several in shares.items()},
    }
    print(row, flush=True)
    return row


def _mean_shares(several: list[Shares]) -> Shares:
    return {part: round(fmean(each[part] for each in several), 3) for part in several[0]}


if __name__ == "__main__":
    options = arguments(__doc__, rounds=8)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), EACH, FILE_SIZE)
        rows = [compare(name, Path(folder), options.rounds) for name in MODELS]
    mean = round(geometric_mean([row["ratio"][0] for row in rows]), 3)
    result = {
        "claim": f"nhwc train over the usual loop: above {CLAIM} each, at least {MEAN_CLAIM} on the geometric mean",
        "holds": mean >= MEAN_CLAIM and all(row["ratio"][0] > CLAIM for row in rows),
        "settings": {"batch": BATCH, "size": SIZE, "workers": WORKERS, "steps": STEPS, "files": FILE_SIZE},
        "geometric_mean": mean,
        "results": rows,
    }
    publish(result, options.output)
