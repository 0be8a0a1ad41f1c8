"""What a suite comes down to: one sentence for each mode, and the texts of each row."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nhwc.report.bench.numbers import interval_text, ratio_text
from nhwc.report.bench.summary import did_not_run
from nhwc.report.formatting import NOTHING, plural, visible
from nhwc.suite import Standing
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.suite import Claim, SuiteResult, SuiteRow

NOT_LISTED = "not on its list"


@dataclass(frozen=True)
class RowText:
    """Texts of one row. standing: where the interval lies against the claim, empty without one."""

    model: str
    ratio: str
    interval: str
    verdict: str
    claim: str
    standing: str
    failure: str


def row_text(row: SuiteRow) -> RowText:
    """The texts of one row."""
    failure = row.failure or _variant_failure(row)
    word = "failed" if failure else NOTHING if row.verdict is None else row.verdict.value
    told = row.claim is not None and row.ratio is not None and row.verdict is not Verdict.UNSTABLE
    return RowText(
        model=visible(row.model),
        ratio=ratio_text(row.ratio),
        interval=interval_text(row.ratio),
        verdict=word,
        claim=claim_text(row.claim),
        standing=row.claim.standing(row.ratio).value if told and row.claim and row.ratio else "",
        failure=visible(failure.strip().rstrip(".")),
    )


def claim_text(claim: Claim | None) -> str:
    """The range that the tutorial claims."""
    return NOT_LISTED if claim is None else f"{claim.low:.2f} to {claim.high:.2f}"


def claimed_for(result: SuiteResult) -> str:
    """The device that the claims in this result are made for, in the tutorial's words."""
    return next((row.claim.where for row in result.rows if row.claim is not None), "")


def headlines(result: SuiteResult) -> list[str]:
    """A sentence for each mode."""
    return [_headline(result, mode) for mode in result.modes] or ["Nothing was measured yet."]


def failures(result: SuiteResult) -> list[str]:
    """A sentence for each model, or variant of one, that was not measured."""
    texts = [(row, row_text(row)) for row in result.rows]
    failed = [f"{text.model} in {row.mode}: {text.failure}." for row, text in texts if text.failure]
    return [*failed, *(f"{sentence}." for sentence in variant_failures(result))]


def failed_rows(result: SuiteResult) -> list[SuiteRow]:
    """The rows without a measurement, or with a variant that did not run."""
    return [row for row in result.rows if row.failure or row.benchmark is None or did_not_run(row.benchmark)]


def variant_failures(result: SuiteResult) -> list[str]:
    """A sentence for each variant that did not run in a model of which others did."""
    return [
        f"{visible(row.model)} in {row.mode}: {sentence}"
        for row in result.rows
        if row.benchmark is not None and row.variant is not None
        for sentence in did_not_run(row.benchmark)
    ]


def _headline(result: SuiteResult, mode: str) -> str:
    rows = result.of_mode(mode)
    told = [row for row in rows if row.ratio is not None and row.verdict is not Verdict.UNSTABLE]
    counts = Counter(row.verdict for row in told)
    parts = [f"faster in {counts[Verdict.FASTER]} of {plural(len(rows), 'model')}"]
    if counts[Verdict.SLOWER]:
        parts.append(f"slower in {counts[Verdict.SLOWER]}")
    if counts[Verdict.CANNOT_TELL]:
        parts.append(f"not to be told apart in {counts[Verdict.CANNOT_TELL]}")
    unstable = sum(row.verdict is Verdict.UNSTABLE for row in rows)
    if unstable:
        parts.append(f"unstable in {unstable}")
    failed = sum(bool(row_text(row).failure) for row in rows)
    if failed:
        parts.append(f"{failed} failed")
    name = next((visible(row.variant.name) for row in rows if row.variant is not None), "the variant")
    return f"In {mode}, {name} is {', '.join(parts)}{_mean(told)}{_claims(told)}."


def _mean(rows: list[SuiteRow]) -> str:
    ratios = [row.ratio.estimate for row in rows if row.ratio is not None and row.ratio.estimate > 0]
    if len(ratios) < 2:
        return ""
    return f"; the geometric mean of the ratios is {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}"


def _claims(rows: list[SuiteRow]) -> str:
    listed = [row.claim.standing(row.ratio) for row in rows if row.claim is not None and row.ratio is not None]
    if not listed:
        return ""
    counts = Counter(listed)
    parts = [f"{counts[each]} {each.value}" for each in Standing if counts[each]]
    return f"; against the tutorial's range, {', '.join(parts)}"


def _variant_failure(row: SuiteRow) -> str:
    """What a variant that did not run says, where the measurement has no ratio for that reason."""
    if row.benchmark is None or row.variant is not None:
        return ""
    return next((each.failure for each in row.benchmark.variants if each.failure), "it has too few samples for a ratio")
