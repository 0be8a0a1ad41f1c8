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

NOT_LISTED = "not listed"


@dataclass(frozen=True)
class RowText:
    """Texts of one row. standing: where the interval lies against the claim, empty without one.

    place: the same for readers, with a word where nothing was set against the claim. is_soft: not to be relied on.
    """

    model: str
    ratio: str
    interval: str
    verdict: str
    claim: str
    standing: str
    failure: str
    place: str
    is_soft: bool


def row_text(row: SuiteRow) -> RowText:
    """The texts of one row."""
    failure = row.failure or _variant_failure(row)
    word = "failed" if failure else NOTHING if row.verdict is None else row.verdict.value
    unstable = row.verdict is Verdict.UNSTABLE
    standing = "" if row.claim is None or row.ratio is None or unstable else row.claim.standing(row.ratio).value
    return RowText(
        model=visible(row.model),
        ratio=ratio_text(row.ratio),
        interval=interval_text(row.ratio),
        verdict="unstable" if unstable and not failure else word,
        claim=claim_text(row.claim),
        standing=standing,
        failure=visible(failure.strip().rstrip(".")),
        place="unstable" if unstable else standing,
        is_soft=unstable,
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


def unstable_reasons(result: SuiteResult) -> list[str]:
    """A sentence for each model of which nothing can be said, with everything that moved under it."""
    return [
        f"{visible(row.model)} in {row.mode}: {visible('; '.join(each.strip().rstrip('.') for each in why))}."
        for row in result.rows
        if row.verdict is Verdict.UNSTABLE and row.benchmark is not None
        for why in [row.benchmark.unstable or ("its times moved",)]
    ]


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
    unstable = sum(row.verdict is Verdict.UNSTABLE for row in rows)
    rest = len(rows) - unstable
    parts = [f"faster in {counts[Verdict.FASTER]} of {plural(rest, 'other' if unstable else 'model')}"]
    if counts[Verdict.SLOWER]:
        parts.append(f"slower in {counts[Verdict.SLOWER]}")
    if counts[Verdict.CANNOT_TELL]:
        parts.append(f"not to be told apart in {counts[Verdict.CANNOT_TELL]}")
    failed = sum(bool(row_text(row).failure) for row in rows)
    if failed:
        parts.append(f"{failed} failed")
    name = next((visible(row.variant.name) for row in rows if row.variant is not None), "the variant")
    open_ = f"nothing can be said of {unstable} of {plural(len(rows), 'model')}: the machine was unstable"
    said = f"{name} is {', '.join(parts)}{_mean(told)}{_claims(told)}"
    return f"In {mode}, {'; '.join([open_] * bool(unstable) + [said] * bool(rest))}."


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
