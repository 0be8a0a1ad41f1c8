"""Each kernel in channels last against torch's own operator in the contiguous format, forward and with backward.

Also: how near the memory-bound ones come to the floor (the bytes that must move, at the rate of ``clone()``), and what
a conversion between the formats costs in clones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from op_cases import CASES, VOLUME, Case
from paired import alternate, arguments, in_channels_last, medians_of, publish, ratio_of

import nhwc
from nhwc.measure.stats import paired_ratio

Call = Callable[[], object]


def timed(calls: dict[str, Call], rounds: int, kernel: str) -> dict[str, list[float]]:
    """Samples of equal rounds; a call that takes under half a millisecond is repeated within a sample.

    The call named "kernel" runs with that kernel of ours, and no other does.
    """
    around = {"kernel": functools.partial(nhwc.kernels.use, kernel)}
    probe = alternate(calls, 2, around=around)
    repeat = max(1, math.ceil(0.5 / max(min(min(samples) for samples in probe.values()), 1e-3)))

    def repeated(call: Call) -> Call:
        def several() -> None:
            for _ in range(repeat):
                call()

        return several

    return alternate({name: repeated(call) for name, call in calls.items()}, rounds, around=around)


def operands(case: Case, channels_last: bool, train: bool) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    images = [torch.randn(shape, generator=random) for shape in case.shapes]
    if channels_last:
        images = [in_channels_last(each) for each in images]
    others = case.others()
    if channels_last and case.kernel == "max_unpool":
        others = tuple(nhwc.to_format(each, "channels_last") for each in others)
    return [each.requires_grad_(train) for each in images] + list(others)


def step(case: Case, channels_last: bool, train: bool) -> Call:
    tensors = operands(case, channels_last, train)
    wanted = [each for each in tensors if each.requires_grad]
    if not train:
        return lambda: case.call(*tensors)
    shape = case.call(*tensors)
    gradient = torch.randn(shape.shape)
    if channels_last and gradient.dim() in {4, 5}:
        gradient = in_channels_last(gradient)
    if case.expanded:
        gradient = torch.randn(*shape.shape[:2], *(1,) * (shape.dim() - 2)).expand(shape.shape)
    return lambda: torch.autograd.grad(case.call(*tensors), wanted, gradient)


def compare(case: Case, train: bool, rounds: int) -> dict[str, Any]:
    first = step(case, channels_last=False, train=train)
    other = step(case, channels_last=True, train=train)
    samples = timed({"contiguous": first, "channels_last": other, "kernel": other}, rounds, case.kernel)
    row = {
        "kernel": case.kernel,
        "case": case.name,
        "shapes": case.shapes,
        "pass": "forward and backward" if train else "forward",
        "ratio": ratio_of(samples["contiguous"], samples["kernel"]),
        "without_kernel": ratio_of(samples["contiguous"], samples["channels_last"]),
        "median_ms": medians_of(samples, digits=3),
    }
    print(f"{case.name:48} {row['pass']:22} {row['ratio']} without {row['without_kernel'][0]}", flush=True)
    return row


#: name, kernel, call, shape, tensors of the input's size that must move (a clone moves two).
FLOORS: Sequence[tuple[str, str, Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], float]] = (
    ("instance_norm", "instance_norm", torch.nn.functional.instance_norm, VOLUME, 2.0),
    ("avg_pool3d(2)", "avg_pool3d", lambda x: torch.nn.functional.avg_pool3d(x, 2), VOLUME, 1.125),
    (
        "adaptive_avg_pool3d(4)",
        "adaptive_avg_pool",
        lambda x: torch.nn.functional.adaptive_avg_pool3d(x, 4),
        VOLUME,
        1.0005,
    ),
    (
        "adaptive_max_pool3d(4)",
        "adaptive_max_pool",
        lambda x: torch.nn.functional.adaptive_max_pool3d(x, 4),
        VOLUME,
        1.0005,
    ),
)


def floors(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, kernel, call, shape, moved in FLOORS:
        image = nhwc.to_format(torch.randn(shape), "channels_last_3d")
        samples = timed({"clone": image.clone, "kernel": lambda call=call, image=image: call(image)}, rounds, kernel)
        ratio = paired_ratio(samples["kernel"], samples["clone"])
        rows.append(
            {
                "operator": name,
                "shape": shape,
                "times_the_floor": [
                    round(value / (moved / 2.0), 3) for value in (ratio.estimate, ratio.low, ratio.high)
                ],
            }
        )
        print(rows[-1], flush=True)
    return rows


CONVERSIONS: tuple[tuple[int, ...], ...] = (
    (1, 1, 512, 512),
    (8, 3, 224, 224),
    (8, 16, 112, 112),
    (8, 64, 112, 112),
    (8, 256, 56, 56),
    (32, 512, 28, 28),
    (16, 2048, 7, 7),
    (64, 2048, 14, 14),
    (1, 1, 64, 64, 64),
    (2, 3, 32, 112, 112),
    (2, 32, 32, 64, 64),
    (2, 128, 16, 32, 32),
    (4, 512, 8, 16, 16),
    (8, 64, 32, 56, 56),
)


def conversions(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for shape in CONVERSIONS:
        plain = torch.randn(shape)
        last = "channels_last" if len(shape) == 4 else "channels_last_3d"
        other = nhwc.to_format(plain, last).clone()
        samples = timed(
            {
                "clone": plain.clone,
                "to": lambda plain=plain, last=last: nhwc.to_format(plain, last),
                "back": lambda other=other: nhwc.to_format(other, "contiguous"),
                "torch": lambda plain=plain: plain.to(
                    memory_format=torch.channels_last if plain.dim() == 4 else torch.channels_last_3d
                ),
            },
            rounds,
            "conversion",
        )
        row: dict[str, Any] = {"shape": shape, "megabytes": round(plain.nbytes / 1e6, 1)}
        for name in ("to", "back", "torch"):
            row[f"{name}_clones"] = ratio_of(samples[name], samples["clone"])
        rows.append(row)
        print(row, flush=True)
    return rows


def passes(case: Case) -> tuple[bool, ...]:
    """Whether to time the backward pass with it: no, yes, or both."""
    if case.expanded:
        return (True,)
    return (False, True) if case.backward else (False,)


def main() -> None:
    options = arguments(__doc__, rounds=15)
    rows = [
        compare(case, train, options.rounds)
        for case in CASES
        for train in ((False, True) if case.backward else (False,))
    ]
    ratios = [row["ratio"][0] for row in rows]
    publish(
        {
            "claim": "each kernel in channels last is at least as fast as the original in contiguous format, by 1.5 "
            "times in the geometric mean; memory-bound ones within 1.5 times of the floor; conversions within 1.25 "
            "clones",
            "geometric_mean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3),
            "slower": [f"{row['case']}, {row['pass']}" for row in rows if row["ratio"][2] < 1.0],
            "results": rows,
            "floors": floors(options.rounds),
            "conversions": conversions(options.rounds),
        },
        options.output,
    )


if __name__ == "__main__":
    main()
