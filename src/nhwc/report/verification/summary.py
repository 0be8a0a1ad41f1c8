"""A verification in one sentence, and its parts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhwc.proof import Outcome
from nhwc.report.formatting import module_text, plural

if TYPE_CHECKING:
    from nhwc.proof import Divergence, ResultError, VariantProof, Verification

_MOST_RESULTS = 5


def headline(verification: Verification) -> str:
    """The first sentence of every report.

    >>> from nhwc.proof import VariantProof, Verification
    >>> one = VariantProof("channels_last", "channels_last", Outcome.PASSED, "")
    >>> headline(Verification("net", False, 8.0, (one,), "cpu", "2.14", 1.0))
    'Passed: channels_last computes what contiguous format computes.'
    """
    by_outcome: dict[Outcome, list[str]] = {}
    for variant in verification.variants:
        by_outcome.setdefault(variant.outcome, []).append(variant.name)
    words = {
        Outcome.DIVERGED: "Diverged: {} compute what contiguous format computes.",
        Outcome.RAISED: "Raised: {} an exception that contiguous format does not.",
        Outcome.NOT_COMPARABLE: "Not comparable: {} be set against contiguous format.",
        Outcome.PASSED: "Passed: {} what contiguous format computes.",
    }
    verbs = {
        Outcome.DIVERGED: ("does not", "do not"),
        Outcome.RAISED: ("raises", "raise"),
        Outcome.NOT_COMPARABLE: ("cannot", "cannot"),
        Outcome.PASSED: ("computes", "compute"),
    }
    sentences = [
        words[outcome].format(f"{' and '.join(names)} {verbs[outcome][len(names) > 1]}")
        for outcome in words
        for names in [by_outcome.get(outcome, [])]
        if names
    ]
    return " ".join(sentences) or "Nothing was verified."


def worst_results(variant: VariantProof) -> list[ResultError]:
    """The results that fail, the furthest off first, else the one that is nearest its limit."""
    ordered = sorted(variant.results, key=lambda each: (each.passed, -_share(each)))
    failed = [each for each in ordered if not each.passed]
    return failed[:_MOST_RESULTS] or ordered[:1]


def result_text(result: ResultError) -> str:
    """One result with its errors."""
    if result.reason and not result.limit:
        return f"{result.title}: {result.reason}"
    return (
        f"{result.title}: error {result.error:.2g}, contiguous {result.contiguous_error:.2g}, limit {result.limit:.2g}"
    )


def more_text(variant: VariantProof) -> str:
    """How many failing results are not listed."""
    failed = sum(not each.passed for each in variant.results)
    return f"and {plural(failed - _MOST_RESULTS, 'more result')}" if failed > _MOST_RESULTS else ""


def divergence_facts(divergence: Divergence) -> list[tuple[str, str]]:
    """(label, text) of what is at fault."""
    facts = [
        ("operator", f"{divergence.operator} ({divergence.phase.value})"),
        ("module", module_text(divergence.module)),
    ]
    if divergence.source is not None:
        facts.append(("source", f"{divergence.source}  {divergence.source.text}"))
    facts.append(("reason", divergence.reason))
    facts += [
        (
            f"input {place}",
            f"{meta.dtype} {meta.shape} strides {meta.strides}" + (f"  {meta.name}" if meta.name else ""),
        )
        for place, meta in enumerate(divergence.inputs)
    ]
    facts += [
        (f"output {place}", f"{meta.dtype} {meta.shape} strides {meta.strides}")
        for place, meta in enumerate(divergence.outputs)
    ]
    if divergence.reproducer:
        shows = {
            True: "it was run alone and showed the fault",
            False: "it was run alone and did not show the fault",
            None: "it was not run to its end",
        }[divergence.reproduces]
        facts.append(("file", f"{divergence.reproducer}: {shows}"))
    return facts


def _share(result: ResultError) -> float:
    return result.error / result.limit if result.limit else result.error * float("inf") if result.error else 0.0
