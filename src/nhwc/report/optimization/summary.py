"""An optimization in one sentence, its table as text, and its facts in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.optimization_report import Form
from nhwc.report.bench.numbers import interval_text, ratio_text, seconds_text
from nhwc.report.formatting import NOTHING, ms_text, visible

if TYPE_CHECKING:
    from nhwc.optimization_report import Candidate, Optimization


@dataclass(frozen=True)
class Row:
    """Texts of one candidate. result: what became of it."""

    name: str
    ms: str
    ratio: str
    interval: str
    predicted: str
    proof: str
    result: str
    is_chosen: bool


HEADS = {
    "name": "candidate",
    "ms": "median ms",
    "ratio": "ratio",
    "interval": "interval",
    "predicted": "predicted",
    "proof": "verified",
}


def headline(optimization: Optimization) -> str:
    """The first sentence of every report."""
    gain = optimization.gain
    if optimization.form is Form.UNCHANGED or not optimization.chosen:
        return f"Unchanged: {optimization.reason}."
    if gain is None:
        return f"Chosen: {visible(optimization.chosen)}, {optimization.form}; {optimization.reason}."
    return (
        f"Chosen: {visible(optimization.chosen)}, {optimization.form}: {ratio_text(gain)} times as fast as "
        f"{optimization.plain} ({interval_text(gain)})."
    )


def rows(optimization: Optimization) -> tuple[Row, ...]:
    """A row for each candidate, in the order of the measurement."""
    return tuple(_row(optimization, each) for each in optimization.candidates)


def prediction_text(optimization: Optimization) -> str:
    """What was promised against what was measured, for the planned candidate; empty without one."""
    planned = next((each for each in optimization.candidates if each.predicted is not None), None)
    if planned is None or planned.predicted is None:
        return ""
    measured = "it did not run" if planned.ratio is None else f"measured {ratio_text(planned.ratio)}"
    return f"predicted {planned.predicted:.2f} times {optimization.plain}, {measured}"


def facts(optimization: Optimization) -> list[tuple[str, str]]:
    """(label, text) of what was measured, and where."""
    benchmark = optimization.benchmark
    where = benchmark.conditions
    versions = ", ".join(f"{name} {version}" for name, version in where.versions[:1])
    step = "training steps" if optimization.training else "forward passes"
    shapes = ", ".join("x".join(map(str, shape)) + f" {dtype}" for shape, dtype in benchmark.inputs)
    amp = f" under autocast {visible(optimization.amp)}" if optimization.amp else ""
    found = [
        ("model", f"{visible(optimization.target)}, {step} of {shapes or 'no tensor'}{amp}"),
        ("machine", f"{visible(where.processor)}, {where.threads} threads, {where.device}, {versions}"),
        ("took", seconds_text(optimization.seconds)),
    ]
    told = prediction_text(optimization)
    return [*found, ("plan", told)] if told else found


def other_lines(optimization: Optimization) -> list[str]:
    """A line for each candidate with inputs of each other shape."""
    lines = []
    for other in optimization.others:
        shapes = " and ".join("x".join(map(str, shape)) for shape in other.shapes)
        for each in other.candidates:
            if each.ratio is None and each.name == other.plain:
                continue
            line = f"{shapes}: {visible(each.name)}"
            if each.ratio is None:
                lines.append(f"{line} did not run: {visible(each.reason)}")
                continue
            promised = "" if each.predicted is None else f", predicted {each.predicted:.2f}"
            interval = interval_text(each.ratio)
            lines.append(f"{line} is {ratio_text(each.ratio)} times as fast as {other.plain} ({interval}){promised}")
    return lines


def _row(optimization: Optimization, each: Candidate) -> Row:
    is_plain = each.name == optimization.plain and each.ratio is None
    return Row(
        name=visible(each.name),
        ms=NOTHING if each.median_ms is None else ms_text(each.median_ms).removesuffix(" ms"),
        ratio="1" if is_plain else ratio_text(each.ratio),
        interval=interval_text(each.ratio),
        predicted=NOTHING if each.predicted is None else f"{each.predicted:.2f}",
        proof=NOTHING if each.outcome is None else each.outcome.value,
        result=each.reason,
        is_chosen=each.name == optimization.chosen,
    )
