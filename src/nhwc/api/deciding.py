"""Which candidate of a measurement is chosen: the fastest that is proved faster than both plain formats, and right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nhwc.measure.stats import judge, judge_disturbed, paired_ratio, widened
from nhwc.optimization_report import PLAIN, Candidate
from nhwc.proof import Outcome, VariantProof
from nhwc.timing import Benchmark, Ratio, VariantTiming, Verdict

#: Verifies the candidate of a name.
Verify = Callable[[str], VariantProof]


@dataclass(frozen=True)
class Decision:
    """chosen: a candidate's name, "" to leave the model as it is. reason: one sentence on that. confidence: of each
    interval, so that all of them hold together as often as the measurement's own do one at a time."""

    chosen: str
    reason: str
    plain: str
    candidates: tuple[Candidate, ...]
    confidence: float


def decide(
    benchmark: Benchmark,
    predicted: Mapping[str, float],
    verify: Verify,
    *,
    current: str,
    others: Mapping[str, Benchmark] | None = None,
) -> Decision:
    """Choose among the variants of ``benchmark``, which has both plain formats in it.

    predicted: candidate → how many times faster than the better plain format a plan promised. verify: asked only for
    what would be chosen, fastest first. current: the plain format that the model is in, "" for neither. others: the
    same variants with arguments of other shapes, by a name for these: what is proved slower there is not chosen.
    """
    elsewhere = others or {}
    plain, between = better_plain(benchmark)
    confidence = confidence_of_each(benchmark)
    found = {each.name: each for each in compared(benchmark, plain, predicted)}
    able = sorted(
        (each for each in found.values() if each.name not in PLAIN and each.verdict is Verdict.FASTER),
        key=lambda each: -(each.ratio.estimate if each.ratio else 0.0),
    )
    for each in able:
        worse = _worse_elsewhere(each.name, elsewhere)
        if worse:
            found[each.name] = replace(each, reason=f"faster, but {worse}")
            continue
        proof = verify(each.name)
        if proof.outcome is Outcome.PASSED:
            found[each.name] = replace(each, outcome=proof.outcome, reason="")
            reason = f"it is proved faster than {plain}, the better plain format"
            return Decision(each.name, reason, plain, _not_chosen(found, each.name), confidence)
        found[each.name] = replace(each, outcome=proof.outcome, reason=f"faster, but {_why(proof)}")
    chosen, reason = _plain_chosen(benchmark, plain, between, current)
    worse = _worse_elsewhere(chosen, elsewhere) if chosen else ""
    if worse:
        reason = f"{chosen.replace('_', ' ')} is faster, but {worse}"
        found[chosen] = replace(found[chosen], reason=reason)
        chosen = ""
    elif chosen == PLAIN[1]:
        proof = verify(chosen)
        found[chosen] = replace(found[chosen], outcome=proof.outcome)
        if proof.outcome is not Outcome.PASSED:
            chosen, reason = "", f"channels last is faster, but {_why(proof)}"
            found[PLAIN[1]] = replace(found[PLAIN[1]], reason=reason)
    return Decision(chosen, reason, plain, _not_chosen(found, chosen), confidence)


def better_plain(benchmark: Benchmark) -> tuple[str, Verdict]:
    """The plain format with the higher estimate, and the verdict on channels last against contiguous."""
    contiguous, last = (benchmark.variant(name) for name in PLAIN)
    if not last.samples_ms or not contiguous.samples_ms:
        return PLAIN[0], Verdict.CANNOT_TELL
    ratio = paired_ratio(contiguous.samples_ms, last.samples_ms, benchmark.confidence)
    return PLAIN[ratio.estimate > 1.0], _verdict(benchmark, contiguous, last, widened(ratio, benchmark.margin))


def _verdict(benchmark: Benchmark, base: VariantTiming, other: VariantTiming, ratio: Ratio) -> Verdict:
    """On a machine that held still by the interval, else by the single pairs."""
    if benchmark.unstable:
        return judge_disturbed(base.samples_ms, other.samples_ms, benchmark.margin)
    return judge(ratio)


def confidence_of_each(benchmark: Benchmark) -> float:
    """Of every interval: the fastest of several is fast by luck, too, so the more there are, the wider each is."""
    others = [each for each in benchmark.variants if each.name not in PLAIN]
    return 1.0 - (1.0 - benchmark.confidence) / max(len(others), 1)


def compared(benchmark: Benchmark, plain: str, predicted: Mapping[str, float]) -> list[Candidate]:
    """Every variant against the better plain format, in the order of the measurement; none has a reason but a failure.

    predicted: as for ``decide``.
    """
    confidence = confidence_of_each(benchmark)
    base = benchmark.variant(plain)
    made = []
    for each in benchmark.variants:
        one = Candidate(each.name, each.spec, each.median_ms, predicted=predicted.get(each.name))
        if each.failure or not each.samples_ms:
            one = replace(one, reason=each.failure or "it was not measured")
        elif each is not base:
            ratio = widened(paired_ratio(base.samples_ms, each.samples_ms, confidence), benchmark.margin)
            one = replace(one, ratio=ratio, verdict=_verdict(benchmark, base, each, ratio))
        made.append(one)
    return made


def _plain_chosen(benchmark: Benchmark, plain: str, between: Verdict, current: str) -> tuple[str, str]:
    """The plain format to go to, "" to stay; and why."""
    if between is Verdict.UNSTABLE:
        return (
            "",
            "the machine changed under the measurement by more than anything gained; measure again when it is idle",
        )
    none = f"no candidate is proved faster than {plain}, the better plain format"
    if between is Verdict.CANNOT_TELL:
        failure = benchmark.variant(PLAIN[1]).failure
        told = f"channels last did not run: {failure.rstrip('.')}" if failure else "the plain formats are equally fast"
        return "", f"{none}, and {told}"
    if plain == current:
        return "", f"{none}, which it is in already"
    return plain, f"{none}, which is proved faster than the other"


def _worse_elsewhere(name: str, others: Mapping[str, Benchmark]) -> str:
    """Why a candidate would harm calls of other shapes, of the first such; empty where none is proved to suffer."""
    for shapes, benchmark in others.items():
        each = benchmark.variant(name)
        if not each.samples_ms:
            return f"with {shapes} it does not run: {each.failure.rstrip('.') or 'it was not measured'}"
        plain, _ = better_plain(benchmark)
        found = next(one for one in compared(benchmark, plain, {}) if one.name == name)
        if found.verdict is Verdict.UNSTABLE:
            return f"the machine changed while {shapes} was measured"
        if found.verdict is Verdict.SLOWER:
            return f"with {shapes} it is slower than {plain.replace('_', ' ')}"
    return ""


def _not_chosen(found: Mapping[str, Candidate], chosen: str) -> tuple[Candidate, ...]:
    best = found.get(chosen)
    return tuple(
        each if each.name == chosen or each.reason or each.ratio is None else replace(each, reason=_behind(each, best))
        for each in found.values()
    )


def _behind(each: Candidate, best: Candidate | None) -> str:
    if each.verdict is Verdict.FASTER and best is not None:
        return f"faster too, but less so than {best.name}"
    return {
        Verdict.FASTER: "faster than the better plain format",
        Verdict.SLOWER: "slower than the better plain format",
        Verdict.UNSTABLE: "the machine changed under the measurement",
    }.get(each.verdict or Verdict.CANNOT_TELL, "no gain over the better plain format is proved")


def _why(proof: VariantProof) -> str:
    return f"its results are not proved right: {proof.outcome.value}, {proof.reason.rstrip('.')}"
