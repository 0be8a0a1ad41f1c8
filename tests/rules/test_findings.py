"""Drafts become findings: merged, tied to their culprit, ranked; whatever the trace, causes never run in a circle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rules.builder import FIRST, LAST, SHAPE, Step, copied

from nhwc.errors import RegistryError
from nhwc.model import (
    Finding,
    InnerCopy,
    OptimizerStateMeta,
    ParameterMeta,
    Phase,
    RankLayout,
    Reorder,
    Severity,
    StepError,
    TensorMeta,
    Trace,
)
from nhwc.rules import RULES, find, rank, rule
from nhwc.rules.registry import Draft

BYTES = 2 * 8 * 4 * 4 * 4
WEIGHT = (8, 8, 3, 3)


# -- merging -------------------------------------------------------------------------------------------------------


def lossy_block(step: Step, x: TensorMeta, weight: TensorMeta, module: str = "block") -> TensorMeta:
    """An operator that loses the format on line 10 and a convolution on line 11 that pays for it."""
    lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST), module=module, line=10)
    return step.convolution(lost, weight, copies=[copied(lost, LAST)], module=f"{module}.conv", line=11)


def test_a_loop_is_one_culprit_with_one_consequence() -> None:
    step = Step()
    x, weight = step.input(), step.parameter("w", WEIGHT)
    for _ in range(3):
        x = lossy_block(step, x, weight)
    culprit, consequence = find(step.trace())
    assert (culprit.code, culprit.calls, culprit.bytes, culprit.call_indices) == ("NH201", 3, 3 * BYTES, (0, 2, 4))
    assert (consequence.code, consequence.calls, consequence.bytes) == ("NH102", 3, 3 * BYTES)
    assert (culprit.cause, consequence.cause) == (None, culprit.id)


def test_modules_and_lines_stay_apart() -> None:
    step = Step()
    x, weight = step.input(), step.parameter("w", WEIGHT)
    for module in ("a", "b"):
        x = lossy_block(step, x, weight, module)
    findings = find(step.trace())
    assert [f.module for f in findings] == ["a", "a.conv", "b", "b.conv"]
    assert [f.cause for f in findings] == [None, findings[0].id, None, findings[2].id]


def test_one_line_that_suffers_from_two_culprits_is_two_findings() -> None:
    step = Step()
    x, weight = step.input(), step.parameter("w", WEIGHT)
    for module in ("a", "b"):
        lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST), module=module)
        step.convolution(lost, weight, copies=[copied(lost, LAST)], module="shared", line=50)
    shared = [f for f in find(step.trace()) if f.module == "shared"]
    assert len({f.cause for f in shared}) == 2
    assert [f.calls for f in shared] == [1, 1]


def test_a_culprit_that_turns_consequence_in_a_later_round_names_its_first() -> None:
    """Round one loses the format; from round two on the same lines only pass the loss on."""
    step = Step()
    x, other = step.input(), step.input()
    for _ in range(3):
        x = step.call("cumsum", [x, other], step.tensor(SHAPE, FIRST), line=10)
        x = step.call("cat", [other, x], step.tensor(SHAPE, FIRST), line=11)
    findings = find(step.trace())
    heads = [f for f in findings if f.cause is None]
    assert [(f.code, f.operator, f.calls) for f in heads] == [("NH201", "cumsum", 1)]
    assert {f.cause for f in findings[1:]} == {heads[0].id}


def test_passing_a_loss_on_takes_no_blame() -> None:
    step = Step()
    x = step.input()
    lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST), module="first")
    passed = step.call("relu", [lost], step.tensor(SHAPE, FIRST))
    mixed = step.call("add", [passed, x], step.tensor(SHAPE, FIRST), module="second")
    step.convolution(mixed, step.parameter("w", WEIGHT), copies=[copied(mixed, LAST)], module="third")
    findings = {finding.module: finding for finding in find(step.trace())}
    assert {module: finding.cause for module, finding in findings.items()} == {
        "first": None,
        "second": findings["first"].id,
        "third": findings["first"].id,
    }
    assert "the contiguous result of cumsum in first" in findings["third"].message


def test_channels_last_again_ends_the_blame() -> None:
    step = Step()
    x, weight = step.input(), step.parameter("w", WEIGHT)
    healed = lossy_block(step, x, weight)
    pos = step.parameter("pos", SHAPE, FIRST)
    step.call("add", [pos, healed], step.tensor(SHAPE, FIRST), module="mixed")
    mixed = next(f for f in find(step.trace()) if f.module == "mixed")
    assert mixed.cause is None


def test_views_of_a_lost_tensor_carry_its_culprit() -> None:
    step = Step()
    x = step.input()
    lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST))
    piece = step.view("slice", lost, (2, 4, 4, 4), lost.strides)
    step.convolution(piece, step.parameter("w", (8, 4, 3, 3)), copies=[copied(piece, LAST)])
    culprit, consequence = find(step.trace())
    assert consequence.cause == culprit.id


def test_mutated_outputs_stay_the_memory_they_are() -> None:
    step = Step()
    x = step.input()
    lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST))
    step.call("relu_", [lost], lost, mutates=(0,))
    step.convolution(lost, step.parameter("w", WEIGHT), copies=[copied(lost, LAST)])
    culprit, consequence = find(step.trace())
    assert (culprit.operator, consequence.cause) == ("cumsum", culprit.id)


def test_nothing_is_expected_of_a_contiguous_model() -> None:
    step = Step()
    x = step.call("cumsum", [step.input(SHAPE, FIRST)], step.tensor(SHAPE, FIRST))
    step.call("add", [x, x], step.tensor(SHAPE, FIRST))
    assert find(step.trace()) == []


# -- ranking -------------------------------------------------------------------------------------------------------


def told(identity: str, **fields: object) -> Finding:
    values: dict[str, object] = {
        "id": identity,
        "code": "NH101",
        "kind": "copy",
        "severity": Severity.WARNING,
        "operator": "",
        "module": "",
        "source": None,
        "phase": Phase.FORWARD,
        "shapes": (),
        "strides": (),
        "bytes": 0,
        "message": "",
        "advice": "",
    }
    return Finding(**{**values, **fields})  # type: ignore[arg-type]


def test_errors_come_first_then_families_by_cost_then_notes() -> None:
    ranked = rank(
        [
            told("note", severity=Severity.NOTE, bytes=10**9),
            told("consequence", cause="heavy", bytes=900),
            told("light", bytes=500),
            told("heavy", bytes=1),
            told("error", severity=Severity.ERROR),
        ]
    )
    assert [f.id for f in ranked] == ["error", "heavy", "consequence", "light", "note"]


def test_measured_time_outweighs_bytes() -> None:
    ranked = rank([told("wide", bytes=10**6, ms=0.1), told("slow", bytes=1, ms=0.2)])
    assert [f.id for f in ranked] == ["slow", "wide"]


def test_only_the_named_rules_are_asked() -> None:
    step = Step()
    lossy_block(step, step.input(), step.parameter("w", WEIGHT))
    assert {f.code for f in find(step.trace(), ["NH102"])} == {"NH102"}
    assert all(f.cause is None for f in find(step.trace(), ["NH102"]))  # its culprit was not asked for
    with pytest.raises((KeyError, RegistryError)):
        find(step.trace(), ["NH000"])


# -- a rule that blames in a circle --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("causes", "tied"),
    [
        ((None, 0), [None, "F1"]),
        ((None, 0, 1), [None, "F1", "F1"]),  # a chain ends at its first
        ((0, 1), [None, None]),  # itself
        ((1, 0), [None, None]),  # a circle
        ((1, 2), [None, None]),  # a call that no rule tells of
        ((1, None), ["F2", None]),
    ],
    ids=str,
)
def test_whatever_a_rule_blames_causes_end(
    monkeypatch: pytest.MonkeyPatch, causes: tuple[int | None, ...], tied: list[str | None]
) -> None:
    monkeypatch.setattr("nhwc.rules.registry.RULES", known := {})
    monkeypatch.setattr("nhwc.rules.findings.RULES", known)

    def blaming(flow):
        """Blames calls as it is told."""
        for call, cause in enumerate(causes):
            yield Draft(call, f"operator {call}", "", None, "forward", (), 8, "", "", cause=cause)

    rule("NH999", kind="copy", severity=Severity.WARNING)(blaming)
    findings = find(Step().trace())
    assert [f.cause for f in sorted(findings, key=lambda f: f.operator)] == tied
    assert_well_tied(findings)


def assert_well_tied(findings: list[Finding]) -> None:
    """Ids are unique; a cause exists, is a culprit, and stands before its consequences, which follow it directly."""
    by_id = {finding.id: finding for finding in findings}
    assert len(by_id) == len(findings)
    culprit = None
    for finding in findings:
        if finding.cause is None:
            culprit = finding.id
        else:
            assert finding.cause == culprit
            assert by_id[finding.cause].cause is None


# -- any trace -----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        "convolution",
        "convolution_backward",
        "clone",
        "copy_",
        "_to_copy",
        "cat",
        "add",
        "relu_",
        "view",
        "as_strided",
        "new_zeros",
        "native_group_norm",
        "max_pool2d",
        "div",
    ]
)
SIZE = st.sampled_from([0, 1, 2, 3, 8])


@st.composite
def tensors(draw: st.DrawFn) -> TensorMeta:
    rank_ = draw(st.integers(0, 6))
    shape = tuple(draw(SIZE) for _ in range(rank_))
    order = draw(st.permutations(range(rank_)))
    strides, step = [0] * rank_, 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    for dim in draw(st.sets(st.integers(0, max(rank_ - 1, 0)), max_size=rank_)):
        strides[dim] = draw(st.sampled_from([0, strides[dim], 2 * strides[dim]]))
    name = draw(st.sampled_from([None, "weight", "input 0"]))
    return TensorMeta(shape, tuple(strides), "float32", "cpu", draw(st.integers(0, 7)), 0, 4, name)


@st.composite
def inner_copies(draw: st.DrawFn) -> InnerCopy:
    source, target = draw(tensors()), draw(tensors())
    same = replace(target, shape=source.shape, strides=tuple(reversed(source.strides)))
    return InnerCopy("aten::copy_", source, same, draw(st.sampled_from([None, 0.5])))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    step = Step()
    step.inputs = draw(st.lists(tensors(), max_size=2))
    for _ in range(draw(st.integers(0, 8))):
        name = draw(NAMES)
        fewest = {"convolution": 2, "convolution_backward": 3, "copy_": 2}.get(name, 1)
        inputs = draw(st.lists(tensors(), min_size=fewest, max_size=4))
        outputs = draw(st.lists(tensors(), max_size=3))
        count = len(step.calls)
        step.call(
            name,
            inputs,
            outputs,
            caller=draw(st.sampled_from([None, "reshape", "instance_norm"])),
            phase=draw(st.sampled_from(list(Phase))),
            forward=draw(st.none() | st.integers(0, count - 1)) if count else None,
            line=draw(st.integers(1, 3)),
            module=draw(st.sampled_from(["", "a", "a.b"])),
            view=draw(st.booleans()),
            mutates=tuple(draw(st.sets(st.integers(0, len(inputs) - 1), max_size=1))),
            arguments=draw(st.sampled_from([(), ({"tensor": 0}, [2, 2], [4, 1])])),
            copies=tuple(draw(st.lists(inner_copies(), max_size=2))),
            reorders=tuple(
                Reorder("oneDNN", operand, "abcd", "acdb", (2, 8, 4, 4), 64, 0.1)
                for operand in draw(st.lists(st.sampled_from(["src", "dst", "weights", ""]), max_size=2))
            ),
        )
    parameters = [ParameterMeta("weight", tensor) for tensor in draw(st.lists(tensors(), max_size=2))]
    with_gradients = [
        replace(one, gradient=replace(one.tensor, strides=tuple(reversed(one.tensor.strides)))) for one in parameters
    ]
    states = [
        OptimizerStateMeta("SGD", True, "weight", "momentum", t.strides, tuple(reversed(t.strides)), t.shape)
        for t in draw(st.lists(tensors(), max_size=1))
    ]
    ranks = [
        RankLayout(n, (("weight", t.shape, t.strides),)) for n, t in enumerate(draw(st.lists(tensors(), max_size=2)))
    ]
    error = draw(st.sampled_from([None, StepError("RuntimeError", "no", len(step.calls) - 1 if step.calls else None)]))
    trace = step.trace(optimizer_states=tuple(states), ranks=tuple(ranks), error=error)
    return replace(trace, parameters=tuple(with_gradients))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces())
def test_any_trace_gives_well_tied_findings(trace: Trace) -> None:
    findings = find(trace)
    assert_well_tied(findings)
    for finding in findings:
        assert finding.code in RULES
        assert finding.bytes >= 0
        assert finding.calls >= 1
        assert finding.message
        assert finding.advice
        assert len(set(finding.call_indices)) == len(finding.call_indices)
        assert set(finding.call_indices) <= set(range(len(trace.calls)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces())
def test_one_rule_says_the_same_bytes_alone_as_among_all(trace: Trace) -> None:
    among = find(trace)
    for code in RULES:
        alone = find(trace, [code])
        assert sum(f.bytes for f in alone) == sum(f.bytes for f in among if f.code == code)
        assert sum(f.calls for f in alone) == sum(f.calls for f in among if f.code == code)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces())
def test_ranking_again_changes_nothing(trace: Trace) -> None:
    findings = find(trace)
    assert rank(findings) == findings
