"""Two measurements of one model side by side: what changed in each variant's ratio, or why they cannot be compared.

Within a file a ratio is paired, so that ratios of two files can be set side by side. Milliseconds of two files are not
paired: the machine may have changed between them, and no text here compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import confidence_text, interval_text, ratio_text
from nhwc.report.formatting import plural, shape_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nhwc.timing import Benchmark, Conditions, Ratio

#: Packages that are built for one torch, and change with it.
_WITH_TORCH = frozenset({"torch", "torchvision", "CUDA", "cuDNN", "oneDNN"})

MEANING = (
    "Ratios are compared, since each was paired within its own run. Milliseconds are not: the machine may change from "
    "one run to the next. Intervals that exclude each other show a change; overlapping ones do not show that there is "
    "none."
)


@dataclass(frozen=True)
class Change:
    """One variant in both measurements. factor: the second ratio over the first.

    apart: the intervals exclude each other.
    """

    variant: str
    first: Ratio
    second: Ratio

    @property
    def factor(self) -> float:
        return self.second.estimate / self.first.estimate

    @property
    def apart(self) -> bool:
        return self.first.high < self.second.low or self.second.high < self.first.low

    @property
    def word(self) -> str:
        """What became of the ratio: "better", "worse" or "cannot tell"."""
        if not self.apart:
            return "cannot tell"
        return "better" if self.factor > 1 else "worse"


def refusals(first: Benchmark, second: Benchmark) -> list[str]:
    """Every reason why the two cannot be compared, each a clause; empty where they can."""
    pairs = [
        ("model", first.target, second.target),
        ("mode", first.mode, second.mode),
        ("batch", first.batch, second.batch),
        ("inputs", _inputs(first), _inputs(second)),
        ("baseline", first.baseline, second.baseline),
        ("confidence of the intervals", first.confidence, second.confidence),
        ("margin of the intervals", first.margin, second.margin),
        *_condition_pairs(first.conditions, second.conditions),
    ]
    reasons = [f"other {what} ({_shown(one)}, {_shown(other)})" for what, one, other in pairs if one != other]
    reasons += _version_refusals(first.conditions, second.conditions)
    for name, benchmark in (("first", first), ("second", second)):
        if benchmark.unstable:
            why = visible(benchmark.unstable[0].rstrip("."))
            reasons.append(f"the {name} was measured on an unstable machine ({why})")
    reasons += _variant_refusals(first, second)
    return reasons


def different_versions(first: Benchmark, second: Benchmark) -> list[str]:
    """The packages that differ between two comparable measurements: "torch 2.13.0 and 2.14.1"."""
    return [f"{name} {one} and {other}" for name, one, other in _versions_apart(first.conditions, second.conditions)]


def changes(first: Benchmark, second: Benchmark) -> tuple[Change, ...]:
    """The variants that both have a ratio of, in the order of the first measurement."""
    others = {variant.name: variant.ratio for variant in second.variants if variant.ratio is not None}
    return tuple(
        Change(variant.name, variant.ratio, others[variant.name])
        for variant in first.variants
        if variant.ratio is not None and variant.name in others
    )


def headline(first: Benchmark, second: Benchmark) -> str:
    """One sentence on what changed."""
    found = changes(first, second)
    apart = [change for change in found if change.apart]
    versions = different_versions(first, second)
    between = f" between {', '.join(versions)}" if versions else ""
    if not apart:
        return f"No ratio changed by more than its interval{between}."
    parts = [
        f"{visible(change.variant)} went from {ratio_text(change.first)} to {ratio_text(change.second)} times as fast"
        for change in apart
    ]
    rest = len(found) - len(apart)
    overlap = f"; {plural(rest, 'other ratio')} cannot be told apart" if rest else ""
    return f"Against {visible(first.baseline)}, {', '.join(parts)}{between}{overlap}."


def render_text(first: Benchmark, second: Benchmark) -> str:
    """The comparison as plain text."""
    heads = ("variant", "first", confidence_text(first.confidence), "second", "interval", "change", "")
    table = [heads, *(_row(change) for change in changes(first, second))]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = ["  ".join(_cells(row, widths)).rstrip() for row in table]
    model = f"{visible(first.target)}, {first.mode}, over {visible(first.baseline)}"
    when = f"first of {first.started}, second of {second.started}"
    return "\n".join([headline(first, second), "", *lines, "", f"{model}: {when}.", MEANING, ""])


def as_document(first: Benchmark, second: Benchmark) -> dict[str, object]:
    """The comparison as JSON-able data."""
    return {
        "format": "nhwc-bench-comparison",
        "version": 1,
        "headline": headline(first, second),
        "target": first.target,
        "mode": first.mode,
        "baseline": first.baseline,
        "different_versions": different_versions(first, second),
        "changes": [
            {
                "variant": change.variant,
                "first": {"estimate": change.first.estimate, "low": change.first.low, "high": change.first.high},
                "second": {"estimate": change.second.estimate, "low": change.second.low, "high": change.second.high},
                "factor": change.factor,
                "intervals_exclude_each_other": change.apart,
                "change": change.word,
            }
            for change in changes(first, second)
        ],
    }


def _row(change: Change) -> tuple[str, ...]:
    return (
        visible(change.variant),
        ratio_text(change.first),
        interval_text(change.first),
        ratio_text(change.second),
        interval_text(change.second),
        f"{100 * (change.factor - 1):+.1f} %",
        change.word,
    )


def _cells(row: tuple[str, ...], widths: list[int]) -> Iterable[str]:
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if place in {0, len(widths) - 1} else cell.rjust(width)


def _condition_pairs(first: Conditions, second: Conditions) -> list[tuple[str, object, object]]:
    settings, others = dict(first.settings), dict(second.settings)
    return [
        ("device", first.device, second.device),
        ("processor", first.processor, second.processor),
        ("number of cores", first.cores, second.cores),
        ("number of threads", first.threads, second.threads),
        ("allocator", first.allocator, second.allocator),
        *((f"setting {name}", settings.get(name), others.get(name)) for name in dict.fromkeys([*settings, *others])),
    ]


def _versions_apart(first: Conditions, second: Conditions) -> list[tuple[str, str, str]]:
    ours, theirs = dict(first.versions), dict(second.versions)
    return [
        (name, ours.get(name, "none"), theirs.get(name, "none"))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _version_refusals(first: Conditions, second: Conditions) -> list[str]:
    """One package may differ, since that is then what is compared; torch may with what is built for it."""
    apart = _versions_apart(first, second)
    names = {name for name, _, _ in apart}
    if len(names) <= 1 or names <= _WITH_TORCH:
        return []
    listed = ", ".join(f"{name} {one} and {other}" for name, one, other in apart)
    return [f"more than one package differs ({listed}), so that none of them can be what is compared"]


def _variant_refusals(first: Benchmark, second: Benchmark) -> list[str]:
    specs, others = ({each.name: each.spec for each in one.variants} for one in (first, second))
    reasons = [
        f"{visible(name)} means another variant ({visible(spec)}, {visible(others[name])})"
        for name, spec in specs.items()
        if name in others and others[name] != spec
    ]
    reasons += _kernel_refusals(first, second)
    if not reasons and not changes(first, second):
        reasons.append("no variant has a ratio in both")
    return reasons


def _kernel_refusals(first: Benchmark, second: Benchmark) -> list[str]:
    """Variants that ran with other kernels of ours; what does not tell them (an older file) is not refused for it."""
    others = {each.name: each.kernels for each in second.variants}
    reasons = []
    for variant in first.variants:
        one, other = variant.kernels, others.get(variant.name)
        if one is not None and other is not None and set(one) != set(other):
            only = [
                f"the {place} alone with {', '.join(sorted(extra))}"
                for place, extra in (("first", {*one} - {*other}), ("second", {*other} - {*one}))
                if extra
            ]
            reasons.append(f"{visible(variant.name)} ran with other kernels ({visible(', '.join(only))})")
    return reasons


def _inputs(benchmark: Benchmark) -> str:
    return "; ".join(f"{shape_text(shape)} {dtype}" for shape, dtype in benchmark.inputs)


def _shown(value: object) -> str:
    return "not given" if value is None or value == "" else visible(str(value))
