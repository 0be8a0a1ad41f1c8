"""An engine in one sentence, and its facts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import confidence_text
from nhwc.report.bench.rows import rows
from nhwc.report.formatting import (
    bytes_text,
    modules_text,
    ms_text,
    operator_text,
    percent_text,
    plural,
    shape_text,
    visible,
)

if TYPE_CHECKING:
    from nhwc.engine_report import EngineReport, Limits, StepTiming


def headline(report: EngineReport) -> str:
    """The first sentence of every report.

    >>> from nhwc.engine_report import CopySpeed, EngineReport, Limits
    >>> limits = Limits(2, 1e11, (CopySpeed(1024, 1e10),))
    >>> headline(EngineReport("net", (), 2, False, (), 1.5, 0, 0, 0, 0, 0.5, limits, "avx2"))
    '1.5 ms a call: nothing is computed.'
    """
    count = len(report.steps)
    if not count:
        return f"{ms_text(report.run_ms)} a call: nothing is computed."
    left = len(report.fallbacks)
    said = "no operator is left to torch" if not left else f"{left} of them run by torch"
    return f"{ms_text(report.run_ms)} a call: {plural(count, 'step')}, {said}."


def accuracy_text(report: EngineReport) -> str:
    """The engine's error beside eager's; empty where it was not measured."""
    found = report.accuracy
    if found is None:
        return ""
    if found.reason:
        return f"not compared with float64: {visible(found.reason)}"
    verdict = "within" if found.holds else "outside"
    gone = visible(modules_text(found.switched_off)) if found.switched_off else ""
    off = f"; less exact algorithms were given up in {gone}" if gone else ""
    return (
        f"error {found.error:.2g} against float64, eager's own {found.eager_error:.2g}: {verdict} the bound of "
        f"{found.bound:.2g}{off}"
    )


def fallback_lines(report: EngineReport) -> list[str]:
    """What torch runs, by operator, the dearest first, with its share of the time."""
    costs: dict[str, list[StepTiming]] = {}
    for step in report.fallbacks:
        costs.setdefault(step.operation, []).append(step)
    total = report.steps_ms
    ordered = sorted(costs.items(), key=lambda each: -sum(step.ms for step in each[1]))
    return [
        f"{visible(operator_text(name))}: {plural(len(steps), 'call')}, {ms_text(sum(step.ms for step in steps))}, "
        f"{percent_text(sum(step.ms for step in steps) / total if total else None)} of the steps' time"
        for name, steps in ordered
    ]


def benchmark_lines(report: EngineReport) -> list[str]:
    """The variants that were measured in turn, with ratios over the baseline."""
    found = report.benchmark
    if found is None:
        return []
    confidence = confidence_text(found.confidence)
    lines = []
    for row in rows(found):
        if row.failure:
            lines.append(f"{row.name} did not run: {row.failure}")
        elif row.is_baseline:
            lines.append(f"{row.name}: {row.ms} ms")
        else:
            lines.append(f"{row.name}: {row.ms} ms, {row.ratio} times ({confidence} {row.interval}), {row.verdict}")
    return lines


def facts(report: EngineReport) -> list[tuple[str, str]]:
    """(label, text) of what holds for the whole engine."""
    shapes = ", ".join(f"{shape_text(shape)} {dtype}" for shape, dtype in report.inputs)
    ran = f"{plural(report.threads, 'thread')}, {report.instruction_set}{', exact' if report.exact else ''}"
    found = [
        ("target", f"{visible(report.target)} on {shapes}, {ran}"),
        ("memory", memory_text(report)),
        ("built", f"in {report.build_s:.1f} s"),
        ("limits", limits_text(report.limits)),
    ]
    if report.accuracy is not None:
        found.append(("numbers", accuracy_text(report)))
    if report.conditions is not None:
        versions = ", ".join(" ".join(each) for each in report.conditions.versions)
        found.append(("machine", f"{report.conditions.processor}, {versions}"))
    return found


def memory_text(report: EngineReport) -> str:
    """What a call and the engine hold."""
    return (
        f"{bytes_text(report.arena_bytes)} for the values of one call ({bytes_text(report.least_arena_bytes)} live at "
        f"once), {bytes_text(report.scratch_bytes)} working memory, {bytes_text(report.weight_bytes)} of weights"
    )


def limits_text(limits: Limits) -> str:
    """What the machine can do, as it was measured."""
    copies = ", ".join(f"{each.bytes_per_s / 1e9:.1f} at {bytes_text(each.size_bytes)}" for each in limits.copies[::2])
    return f"{limits.flop_per_s / 1e9:.1f} GFLOP/s in registers; copies in GB/s: {copies}"
