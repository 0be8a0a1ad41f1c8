"""The decision of optimize, from made up samples."""

from __future__ import annotations

import pytest

from nhwc.api.deciding import Decision, decide
from nhwc.proof import Outcome, VariantProof
from nhwc.timing import Benchmark, Conditions, Stop, VariantTiming, Verdict

CONDITIONS = Conditions("cpu", "a processor", 2.0, 2, "Linux", "malloc", (("torch", "2.14"),))
NOISE = (1.0, 1.01, 0.99, 1.004, 0.996, 1.008, 0.992, 1.0, 1.002, 0.998)


def measured(unstable: tuple[str, ...] = (), failed: dict[str, str] | None = None, **times_ms: float) -> Benchmark:
    """A measurement in which each candidate takes so many milliseconds, give or take a percent."""
    variants = [
        VariantTiming(name.replace("__", "+"), name.replace("__", "+"), tuple(ms * each for each in NOISE))
        for name, ms in times_ms.items()
    ]
    variants += [VariantTiming(name, name, failure=reason) for name, reason in (failed or {}).items()]
    return Benchmark(
        "net", "inference", "contiguous", tuple(variants), CONDITIONS, (), 8, 0, 0.07, 0.05, 0.95, 1.0, Stop.NARROW,
        1.0, "2026-01-01T00:00:00+00:00", unstable,
    )  # fmt: skip


def decided(
    benchmark: Benchmark, current: str = "contiguous", wrong: tuple[str, ...] = ()
) -> tuple[Decision, list[str]]:
    asked: list[str] = []

    def verify(name: str) -> VariantProof:
        asked.append(name)
        return VariantProof(name, name, Outcome.DIVERGED if name in wrong else Outcome.PASSED, "output differs")

    return decide(benchmark, {"planned": 1.3}, verify, current=current), asked


def test_the_fastest_that_beats_both_plain_formats() -> None:
    found, asked = decided(measured(contiguous=10, channels_last=8, channels_last__kernels=6, planned=7))
    assert (found.chosen, found.plain, asked) == ("channels_last+kernels", "channels_last", ["channels_last+kernels"])
    ratio = {each.name: each.ratio for each in found.candidates}["channels_last+kernels"]
    assert ratio is not None
    assert ratio.estimate == pytest.approx(8 / 6)
    assert {each.name: each.reason for each in found.candidates} == {
        "contiguous": "slower than the better plain format",
        "channels_last": "",
        "channels_last+kernels": "",
        "planned": "faster too, but less so than channels_last+kernels",
    }


def test_a_gain_over_one_plain_format_alone_is_none() -> None:
    found, asked = decided(measured(contiguous=10, channels_last=8, planned=8.1))
    assert (found.chosen, asked) == ("channels_last", ["channels_last"])
    assert found.candidates[-1].verdict is Verdict.CANNOT_TELL
    assert found.candidates[-1].predicted == 1.3


def test_within_the_margin_nothing_is_proved() -> None:
    found, _ = decided(measured(contiguous=10, channels_last=12, planned=9.6))
    assert (found.chosen, found.plain) == ("", "contiguous")
    assert found.reason.endswith("which it is in already")


def test_plain_formats_that_are_alike_leave_the_model_as_it_is() -> None:
    found, asked = decided(measured(contiguous=10, channels_last=10.1))
    assert (found.chosen, asked) == ("", [])
    assert "equally fast" in found.reason


def test_a_model_in_the_slower_format_is_brought_to_the_other() -> None:
    assert decided(measured(contiguous=8, channels_last=10), current="channels_last")[0].chosen == "contiguous"
    assert decided(measured(contiguous=8, channels_last=10), current="")[0].chosen == "contiguous"


def test_what_is_wrong_is_not_chosen_however_fast() -> None:
    benchmark = measured(contiguous=10, channels_last=12, planned=5, engine=7)
    found, asked = decided(benchmark, wrong=("planned",))
    assert (found.chosen, asked) == ("engine", ["planned", "engine"])
    planned = next(each for each in found.candidates if each.name == "planned")
    assert planned.outcome is Outcome.DIVERGED
    assert planned.reason == "faster, but its results are not proved right: diverged, output differs"


def test_channels_last_is_verified_too() -> None:
    found, asked = decided(measured(contiguous=10, channels_last=8), wrong=("channels_last",))
    assert (found.chosen, asked) == ("", ["channels_last"])
    assert found.reason.startswith("channels last is faster, but its results are not proved right")


def test_on_an_unstable_machine_a_small_gain_is_not_proved() -> None:
    found, asked = decided(measured(("other processes ran",), contiguous=10, channels_last=9.6, planned=9.5))
    assert (found.chosen, asked) == ("", [])
    assert {each.verdict for each in found.candidates} == {None, Verdict.UNSTABLE}
    assert found.reason.startswith("the machine changed")


def test_on_an_unstable_machine_what_every_pair_shows_is_proved() -> None:
    found, _ = decided(measured(("other processes ran",), contiguous=10, channels_last=5, planned=2))
    assert found.chosen == "planned"
    found, _ = decided(measured(("other processes ran",), contiguous=10, channels_last=5, planned=4.9))
    assert (found.chosen, found.plain) == ("channels_last", "channels_last")
    found, _ = decided(measured(("other processes ran",), contiguous=5, channels_last=10))
    assert (found.chosen, found.plain) == ("", "contiguous")


def test_what_did_not_run_says_why() -> None:
    found, _ = decided(measured(failed={"channels_last": "it raised ValueError: no."}, contiguous=10, planned=7))
    assert found.chosen == "planned"
    alone, _ = decided(measured(failed={"channels_last": "it raised ValueError: no."}, contiguous=10))
    assert (alone.chosen, alone.plain) == ("", "contiguous")
    assert alone.reason.endswith("channels last did not run: it raised ValueError: no")


def test_more_candidates_widen_every_interval() -> None:
    one, _ = decided(measured(contiguous=10, channels_last=12, planned=9))
    four, _ = decided(measured(contiguous=10, channels_last=12, planned=9, engine=11, a=11, b=11))
    assert one.confidence == pytest.approx(0.95)
    assert four.confidence == pytest.approx(0.9875)
    narrow, wide = (next(each.ratio for each in found.candidates if each.name == "planned") for found in (one, four))
    assert narrow is not None
    assert wide is not None
    assert wide.low <= narrow.low


def test_what_another_shape_makes_of_the_winner_counts() -> None:
    here = measured(contiguous=10, channels_last=12, planned=5)
    for there, reason in [
        (measured(contiguous=20, channels_last=10, planned=10.1), ""),
        (
            measured(contiguous=20, channels_last=10, planned=13),
            "faster, but with big ones it is slower than channels last",
        ),
        (
            measured(contiguous=10, channels_last=10, failed={"planned": "no."}),
            "faster, but with big ones it does not run: no",
        ),
        (
            measured(contiguous=10, channels_last=10, planned=9.7, unstable=("the clock rose",)),
            "faster, but the machine changed while big ones was measured",
        ),
    ]:
        found = decide(
            here,
            {},
            lambda name: VariantProof(name, name, Outcome.PASSED, ""),
            current="contiguous",
            others={"big ones": there},
        )
        assert found.candidates[-1].reason == reason
        assert found.chosen == ("" if reason else "planned")
