"""The first sentence: worst thing first, with cost, culprit, modules and line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report import sample

from nhwc.model import Report, Trace
from nhwc.report.summary import Verdict, headline, verdict

SHUFFLES = (
    "Not in channels last end to end: 16 calls of clone in channel_shuffle (torchvision/models/shufflenetv2.py:29; "
    "16 modules, stage2.0 … stage4.3), and 3 calls that follow, "
)
LOST_IN_TRAINING = (
    "Not in channels last end to end: 2 operator calls from 2 culprits, and 1 call that follows, cost 2.5 ms of "
    "71.3 ms (3.5 %) and move 3.91 MB; the first is 1 call of silu_backward (torchvision/models/net.py:50; "
    "features.12), 1.7 ms of it."
)
RAISES = (
    "The step raises in channels last: RuntimeError in view (head, /home/kim/project/model.py:41): view size is "
    "not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
    "subspaces). Use .reshape(...) instead; what follows covers the 4 operator calls up to there."
)
CLEAN = "Channels last end to end: no activation is copied, lost or reordered in 38 operator calls; 1 note below."
SENTENCES = {
    "clean_resnet": (Verdict.CLEAN, CLEAN),
    "shufflenet": (Verdict.LOST, f"{SHUFFLES}cost 9.93 ms of 76.9 ms (13 %) and move 31.3 MB."),
    "static_shufflenet": (Verdict.LOST, f"{SHUFFLES}move 31.3 MB (time not measured)."),
    "training": (Verdict.LOST, LOST_IN_TRAINING),
    "raising": (Verdict.RAISES, RAISES),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_first_sentence(name: str) -> None:
    report = sample.SAMPLES[name]()
    assert (verdict(report), headline(report)) == SENTENCES[name]


def test_wrong_numbers_come_before_lost_time() -> None:
    report = sample.fused_optimizer()
    assert verdict(report) is Verdict.WRONG
    assert headline(report).startswith("Numbers can be wrong: fused Adam reads exp_avg of features.11.conv.weight")
    assert LOST_IN_TRAINING in headline(report)


def test_a_step_that_raises_says_so_before_everything() -> None:
    report = sample.fused_optimizer()
    raised = Report(replace(report.trace, error=sample.raising().trace.error), report.findings)
    said = headline(raised)
    assert said.index("The step raises") < said.index("Numbers can be wrong") < said.index("Not in channels last")


def test_a_contiguous_model_is_not_called_clean() -> None:
    def contiguous(trace: Trace) -> Trace:
        calls = tuple(
            replace(
                call,
                outputs=tuple(
                    replace(each, strides=sample.strides_for(each.shape, "contiguous")) for each in call.outputs
                ),
            )
            for call in trace.calls
        )
        return replace(trace, calls=calls, conversion="")

    report = Report(contiguous(sample.clean_resnet().trace), [])
    assert verdict(report) is Verdict.UNUSED
    assert headline(report) == (
        "Not in channels last: none of the 38 operator calls wrote a 4-D or 5-D tensor in channels last."
    )


def test_slow_operators_do_not_deny_the_format() -> None:
    report = sample.training()
    slow = replace(report.findings[0], kind="slow")
    assert headline(Report(report.trace, [slow])).startswith(
        "In channels last end to end, but slow in it: 1 call of instance"
    )


def test_time_that_cannot_be_told_from_noise_is_not_claimed() -> None:
    report = sample.training()
    noisy = replace(report.findings[0], ms=0.008, ms_spread=0.016)
    said = headline(Report(report.trace, [noisy]))
    assert "costs no more than the noise (0.008 ± 0.016 ms of 71.3 ms) and moves 1.3 MB" in said


@pytest.mark.parametrize(("mode", "words"), [("static", "a static trace can see"), ("compiled", "a compiled step")])
def test_a_clean_verdict_admits_what_it_cannot_see(mode: str, words: str) -> None:
    trace = replace(sample.clean_resnet().trace, mode=mode)
    assert words in headline(Report(trace, []))


def test_a_compiled_graph_that_tells_no_results_is_judged_by_what_its_operators_read() -> None:
    trace = sample.clean_resnet().trace
    graph = replace(trace, mode="compiled", calls=tuple(replace(call, outputs=()) for call in trace.calls))
    assert verdict(Report(graph, [])) is Verdict.CLEAN
    assert verdict(Report(replace(graph, mode="eager"), [])) is Verdict.UNUSED
