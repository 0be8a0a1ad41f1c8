"""What peers.py measured of the engine, against each peer: a table of models, geometric means, and the claims.

    python benchmarks/peers_claims.py benchmarks/results/peers.json

Exits with 1 where a claim is not met.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from peer_models import TUTORIAL_MODELS

from nhwc.measure.stats import paired_ratio
from nhwc.timing import Ratio

ENGINE = "engine"


@dataclass(frozen=True)
class Claim:
    """The geometric mean over models of a peer's time over the engine's is at least ``mean``; over batches, or one.

    each: so is the ratio of every tutorial model; 0 claims nothing of single models.
    """

    peer: str
    mean: float
    batch: int | None = None
    each: float = 0.0


CLAIMS = (
    Claim("onnxruntime", 1.35, each=1.0),
    Claim("openvino", 1.45),
    Claim("inductor", 1.8),
    Claim("eager_nchw", 3.0, batch=1),
    Claim("eager_nchw", 2.0, batch=8),
)


def ratios(results: Sequence[dict[str, Any]], peer: str) -> dict[tuple[str, int], Ratio]:
    """(model, batch) → how many times faster than the peer the engine is, where both were measured."""
    found = {}
    for result in results:
        samples = {each["name"]: each["samples_ms"] for each in result["contenders"] if not each["failure"]}
        if samples.get(peer) and samples.get(ENGINE):
            found[result["model"], result["batch"]] = paired_ratio(samples[peer], samples[ENGINE])
    return found


def judged(claim: Claim, results: Sequence[dict[str, Any]]) -> tuple[bool, str]:
    """Whether a claim holds, and one line that says so; without any measurement it does not."""
    of_batch = {
        (model, batch): ratio
        for (model, batch), ratio in ratios(results, claim.peer).items()
        if claim.batch in (None, batch)
    }
    asked = f"asked {claim.mean}" + (f", and {claim.each} of each tutorial model" if claim.each else "")
    where = "" if claim.batch is None else f" at batch {claim.batch}"
    if not of_batch:
        return False, f"{claim.peer}{where}: not measured ({asked})"
    mean = geometric_mean(ratio.estimate for ratio in of_batch.values())
    behind = [
        f"{model}/{batch} {ratio.estimate:.2f}"
        for (model, batch), ratio in of_batch.items()
        if model in TUTORIAL_MODELS and ratio.estimate < claim.each
    ]
    holds = mean >= claim.mean and not behind
    told = f"{claim.peer}{where}: {mean:.2f} over {len(of_batch)} ({asked}): {'holds' if holds else 'not met'}"
    return holds, told + (f"; behind on {', '.join(behind)}" if behind else "")


def table(results: Sequence[dict[str, Any]]) -> str:
    """A line per model and batch: the engine's median milliseconds, then its ratio to each peer with the interval."""
    peers = list(dict.fromkeys(claim.peer for claim in CLAIMS))
    by_peer = {peer: ratios(results, peer) for peer in peers}
    lines = [f"{'model':<28}{'batch':>5}  " + "".join(f"{peer:<24}" for peer in peers)]
    for result in results:
        key = (result["model"], result["batch"])
        cells = (_cell(by_peer[peer].get(key)) for peer in peers)
        lines.append(f"{key[0]:<28}{key[1]:>5}  " + "".join(f"{cell:<24}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    bounds = f" ({ratio.low:.2f} to {ratio.high:.2f})" if math.isfinite(ratio.high) else ""
    return f"{ratio.estimate:.2f}{bounds}"


def main() -> int:
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["results"]
    print(table(results))
    verdicts = [judged(claim, results) for claim in CLAIMS]
    print("\n".join(told for _holds, told in verdicts))
    return 0 if all(holds for holds, _told in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
