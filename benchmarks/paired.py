"""Paired measurement for the scripts here: two callables in turn, the ratio with its confidence interval."""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import nhwc
from nhwc.machine import processor_name
from nhwc.measure.stats import paired_ratio
from nhwc.strides import channels_last_for


def alternate(
    calls: dict[str, Callable[[], object]],
    rounds: int,
    seed: int = 0,
    around: dict[str, Callable[[], AbstractContextManager[object]]] | None = None,
) -> dict[str, list[float]]:
    """Milliseconds of every call in every round; the order within a round is random. Two rounds warm up.

    around: contexts that calls of these names run in, entered outside the clock.
    """

    def timed(name: str) -> float:
        with (around or {}).get(name, nullcontext)():
            start = time.perf_counter_ns()
            calls[name]()
            return (time.perf_counter_ns() - start) / 1e6

    return alternate_samples({name: partial(timed, name) for name in calls}, rounds, seed, warming=2)


def alternate_samples(
    runs: dict[str, Callable[[], float]], rounds: int, seed: int = 0, warming: int = 1
) -> dict[str, list[float]]:
    """Milliseconds that every run tells of itself, in every round behind ``warming`` ones; random order within each."""
    order = list(runs)
    shuffled = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in order}
    for round_number in range(rounds + warming):
        shuffled.shuffle(order)
        for name in order:
            took = runs[name]()
            if round_number >= warming:
                samples[name].append(took)
    return samples


def interval(statistic: Callable[..., Any], *samples: list[float]) -> tuple[float, float, float]:
    """(estimate, low, high): a statistic of paired samples with its 95 % bootstrap interval."""
    arrays = tuple(np.asarray(sample) for sample in samples)
    found = stats.bootstrap(
        arrays,
        statistic,
        paired=True,
        vectorized=False,
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(statistic(*arrays)), float(found.low), float(found.high)


def median_ratio(first: Any, second: Any) -> float:
    """Median of the paired ratios first / second."""
    return float(np.median(first / second))


def median_difference(first: Any, second: Any) -> float:
    """Median of the paired differences first - second."""
    return float(np.median(first - second))


def in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """A 4-D or 5-D tensor in the channels-last format of its rank."""
    return nhwc.to_format(tensor, channels_last_for(tensor.dim()))


def machine() -> dict[str, object]:
    """What a reader needs to place a result."""
    return {
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def arguments(description: str | None, rounds: int) -> argparse.Namespace:
    """The options that every script takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", type=Path, help="write the result as JSON")
    parser.add_argument("--rounds", type=int, default=rounds, help="paired samples")
    return parser.parse_args()


def ratio_of(first: list[float], second: list[float]) -> list[float]:
    """[estimate, low, high] of the paired ratio first / second, with its 95 % interval, for people."""
    found = paired_ratio(first, second)
    return [round(value, 3) for value in (found.estimate, found.low, found.high)]


def medians_of(samples: dict[str, list[float]], digits: int = 1) -> dict[str, float]:
    """The median of every call, in ms."""
    return {each: round(sorted(times)[len(times) // 2], digits) for each, times in samples.items()}


def publish_models(
    description: str | None, claim: str, models: Iterable[str], compare: Callable[[str, int], dict[str, Any]]
) -> None:
    """The whole of a script that compares models: each row has its "model", "ratio" and the least that is claimed."""
    options = arguments(description, rounds=12)
    rows = [compare(name, options.rounds) for name in models]
    holds = {row["model"]: row["ratio"][0] >= row["claim"] for row in rows}
    publish({"claim": f"{claim}: at least the ratio in `claim`", "holds": holds, "results": rows}, options.output)


def publish(result: dict[str, object], output: Path | None) -> None:
    """Print a result, and write it with its command and machine."""
    full = {"command": "python " + " ".join(sys.argv), "machine": machine(), **result}
    print(json.dumps(full, indent=2))
    if output is not None:
        output.write_text(json.dumps(full, indent=2) + "\n")
