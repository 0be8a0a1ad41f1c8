"""What every readable report of a measurement says besides its ratios: how it was measured, where, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import seconds_text, share_text
from nhwc.report.formatting import plural, shape_text, visible
from nhwc.timing import Stop

if TYPE_CHECKING:
    from nhwc.timing import Benchmark, Conditions

MEANING = (
    "A ratio is the baseline's time over the variant's, paired within each round: above 1 is faster. Trust the ratios; "
    "milliseconds move with the machine."
)


def stopped(benchmark: Benchmark) -> str:
    """Why the measurement ended, with its rounds and seconds, as one sentence.

    The text names the half width that was asked for, since that is what decided.
    """
    rounds = max((len(variant.samples_ms) for variant in benchmark.variants), default=0)
    after = f"after {plural(rounds, 'round')} and {seconds_text(benchmark.seconds)}"
    asked = share_text(benchmark.precision)
    if benchmark.stopped is Stop.NARROW:
        return f"Stopped {after}: every interval is narrow enough (±{asked})."
    widest = max(
        (variant.ratio.half_width for variant in benchmark.variants if variant.ratio is not None), default=None
    )
    if widest is None or widest == float("inf"):
        wide = ""
    elif widest > benchmark.precision:
        wide = f", with intervals up to ±{share_text(widest)} where ±{asked} was asked for"
    else:
        wide = f", with every interval within ±{share_text(widest)}"
    limit = f" ({seconds_text(benchmark.budget_s)})" if benchmark.stopped is Stop.BUDGET else ""
    return f"Stopped {after}: {benchmark.stopped.value}{limit}{wide}."


def facts(benchmark: Benchmark) -> list[tuple[str, str]]:
    """Label and text of each thing a reader needs in order to trust or repeat the measurement."""
    where = benchmark.conditions
    steps = max((variant.calls for variant in benchmark.variants if variant.samples_ms), default=1)
    each = f", a sample being the mean of up to {steps} steps" if steps > 1 else ""
    judged = f"intervals of {100 * benchmark.confidence:g} %, widened by {share_text(benchmark.margin)} on either side"
    rows = [
        ("Target", benchmark.target),
        ("Mode", {"training": "training: forward, backward and optimizer step"}.get(benchmark.mode, benchmark.mode)),
        ("Inputs", "; ".join(f"{shape_text(shape)} {dtype}" for shape, dtype in benchmark.inputs)),
        ("Batch", "" if benchmark.batch is None else str(benchmark.batch)),
        ("Measured", f"every variant once a round, in random order (seed {benchmark.seed}){each}; {judged}"),
        ("Kernels", _kernels_text(benchmark)),
        ("Device", f"{where.device}, {where.processor}, {where.cores:g} cores, {plural(where.threads, 'thread')}"),
        ("Memory", where.allocator),
        ("System", where.system),
        ("Settings", settings_text(where)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in where.versions)),
        ("Started", benchmark.started),
    ]
    return [(label, visible(text)) for label, text in rows if text]


def _kernels_text(benchmark: Benchmark) -> str:
    """Which kernels of ours were on during which variants' steps."""
    by_names: dict[tuple[str, ...], list[str]] = {}
    for variant in benchmark.variants:
        if variant.kernels:
            by_names.setdefault(variant.kernels, []).append(variant.name)
    return "; ".join(f"in {' and '.join(variants)} {', '.join(names)}" for names, variants in by_names.items())


def settings_text(conditions: Conditions) -> str:
    """The settings that say something, joined by commas; "none" means that nothing was set."""
    return ", ".join(f"{name} {value}" for name, value in conditions.settings if value not in {"", "none"})


def sentences(texts: tuple[str, ...]) -> list[str]:
    """Sentences of the measurement, safe to show."""
    return [visible(text) for text in texts]
