"""NH301 to NH403: strides that mislead and numbers that go wrong, each with one that fires and a near miss."""

from __future__ import annotations

import pytest
from rules.builder import FIRST, LAST, SHAPE, Step, copied

from nhwc.model import OptimizerStateMeta, Phase, RankLayout, Severity, StepError
from nhwc.rules import find

WEIGHT = (8, 8, 3, 3)
IN_LAST, IN_FIRST = (72, 1, 24, 8), (72, 9, 3, 1)


# -- NH301: gradients and parameters -------------------------------------------------------------------------------


def test_nh301_gradient_in_another_order() -> None:
    step = Step()
    step.parameter("body.weight", WEIGHT, gradient=IN_FIRST)
    step.parameter("tail.weight", WEIGHT, gradient=IN_FIRST)
    (finding,) = find(step.trace())
    assert (finding.code, finding.severity, finding.module) == ("NH301", Severity.WARNING, "body")
    assert (finding.bytes, finding.calls, finding.phase) == (2 * 8 * 8 * 9 * 4, 2, Phase.BACKWARD)
    assert "body.weight, tail.weight" in finding.message


def test_nh301_other_strides_for_the_same_bytes_are_a_note() -> None:
    step = Step()
    step.parameter("w", (8, 1, 3, 3), strides=(9, 9, 3, 1), gradient=(9, 1, 3, 1))
    (finding,) = find(step.trace())
    assert (finding.code, finding.severity, finding.bytes) == ("NH301", Severity.NOTE, 0)


def test_nh301_both_kinds_stay_apart() -> None:
    step = Step()
    step.parameter("apart", WEIGHT, gradient=IN_FIRST)
    step.parameter("same", (8, 1, 3, 3), strides=(9, 9, 3, 1), gradient=(9, 1, 3, 1))
    assert [(f.severity.value, f.calls) for f in find(step.trace())] == [("warning", 1), ("note", 1)]


@pytest.mark.parametrize("gradient", [None, IN_LAST], ids=["none", "equal"])
def test_nh301_not_where_there_is_nothing_to_compare(gradient: tuple[int, ...] | None) -> None:
    step = Step()
    step.parameter("w", WEIGHT, gradient=gradient)
    assert find(step.trace()) == []


# -- NH302: strides that mislead -----------------------------------------------------------------------------------

ONE = (1, 3, 8, 8)
ODD = (3, 1, 24, 3)


def one_of_a_batch(step: Step, strides: tuple[int, ...] = ODD):
    batch = step.input((2, 3, 8, 8))
    return step.view("unsqueeze", batch, ONE, strides)


def test_nh302_batch_of_one_with_an_odd_stride() -> None:
    step = Step()
    step.call("max_pool2d_with_indices", [one_of_a_batch(step)], step.tensor((1, 3, 4, 4), FIRST), caller="max_pool2d")
    (finding,) = find(step.trace())
    assert (finding.code, finding.operator, finding.bytes) == ("NH302", "max_pool2d", 3 * 16 * 4)
    assert "made by unsqueeze (/model.py:1), has strides (3, 1, 24, 3), not (192, 1, 24, 3)" in finding.message


def test_nh302_convolution_with_a_contiguous_weight() -> None:
    step = Step()
    one = one_of_a_batch(step)
    weight = step.parameter("w", (8, 3, 3, 3), FIRST)
    step.convolution(one, weight, FIRST, copies=[copied(one, FIRST)])
    (finding,) = find(step.trace())
    assert (finding.code, finding.operator, finding.bytes) == ("NH302", "conv2d", 3 * 64 * 4)


def test_nh302_not_with_the_canonical_stride_for_then_the_operator_itself_loses() -> None:
    step = Step()
    one = one_of_a_batch(step, (192, 1, 24, 3))
    step.call("cumsum", [one], step.tensor(ONE, FIRST))
    assert [finding.code for finding in find(step.trace())] == ["NH201"]


def test_nh302_not_where_the_answer_is_channels_last() -> None:
    step = Step()
    step.call("relu", [one_of_a_batch(step)], step.tensor(ONE, LAST))
    assert find(step.trace()) == []


def test_nh302_is_the_cause_of_what_follows() -> None:
    step = Step()
    pooled = step.call("max_pool2d", [one_of_a_batch(step)], step.tensor((1, 3, 4, 4), FIRST))
    step.convolution(pooled, step.parameter("w", (8, 3, 3, 3)), copies=[copied(pooled, LAST)])
    culprit, consequence = find(step.trace())
    assert (culprit.code, consequence.code, consequence.cause) == ("NH302", "NH102", culprit.id)


# -- NH303: strides written by hand --------------------------------------------------------------------------------


def windows(
    step: Step, memory_format: str, stride: object, caller: str = "as_strided", phase: Phase = Phase.FORWARD
) -> None:
    x = step.input(SHAPE, memory_format)
    arguments = ({"tensor": 0}, [2, 8, 3, 3, 2, 2], stride)
    seen = step.tensor((2, 8, 3, 3, 2, 2), strides=(128, 16, 4, 1, 4, 1), of=x)
    step.call("as_strided", [x], seen, view=True, arguments=arguments, caller=caller, phase=phase)


def test_nh303_strides_written_for_contiguous() -> None:
    step = Step()
    windows(step, LAST, [128, 16, 4, 1, 4, 1])
    (finding,) = find(step.trace())
    assert (finding.code, finding.severity, finding.bytes) == ("NH303", Severity.ERROR, 0)


def test_nh303_not_on_contiguous_memory() -> None:
    step = Step()
    windows(step, FIRST, [128, 16, 4, 1, 4, 1])
    assert find(step.trace()) == []


def test_nh303_not_strides_taken_from_the_tensor() -> None:
    step = Step()
    windows(step, LAST, [128, 1, 32, 8, 32, 8])
    assert find(step.trace()) == []


@pytest.mark.parametrize(("caller", "phase"), [("unfold", Phase.FORWARD), ("as_strided", Phase.BACKWARD)])
def test_nh303_not_what_torch_calls_itself(caller: str, phase: Phase) -> None:
    step = Step()
    windows(step, LAST, [128, 16, 4, 1, 4, 1], caller, phase)
    assert find(step.trace()) == []


# -- NH401: fused optimizers ---------------------------------------------------------------------------------------


def state(**fields: object) -> OptimizerStateMeta:
    values: dict[str, object] = {
        "optimizer": "AdamW",
        "fused": True,
        "parameter": "body.weight",
        "key": "exp_avg",
        "parameter_strides": IN_LAST,
        "state_strides": IN_LAST,
        "shape": WEIGHT,
        "gradient_strides": IN_LAST,
    }
    return OptimizerStateMeta(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"state_strides": IN_FIRST}, {"gradient_strides": IN_FIRST}], ids=["state", "gradient"]
)
def test_nh401_fused_optimizer_with_another_order(wrong: dict[str, object]) -> None:
    states = (state(**wrong), state(**wrong, key="exp_avg_sq"))
    (finding,) = find(Step().trace(optimizer_states=states))
    assert (finding.code, finding.severity, finding.operator) == ("NH401", Severity.ERROR, "AdamW.step")
    assert (finding.module, finding.phase, finding.calls) == ("body", Phase.OPTIMIZER, 1)


def test_nh401_one_finding_for_each_optimizer() -> None:
    states = (state(state_strides=IN_FIRST), state(state_strides=IN_FIRST, optimizer="SGD", key="momentum_buffer"))
    assert [f.operator for f in find(Step().trace(optimizer_states=states))] == ["AdamW.step", "SGD.step"]


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"gradient_strides": None},
        {"fused": False, "state_strides": IN_FIRST},
        {
            "shape": (8, 1, 3, 3),
            "parameter_strides": (9, 1, 3, 1),
            "state_strides": (9, 9, 3, 1),
            "gradient_strides": (9, 9, 3, 1),
        },
    ],
    ids=["equal", "no gradient", "not fused", "the same bytes"],
)
def test_nh401_not_where_the_update_is_right(right: dict[str, object]) -> None:
    assert find(Step().trace(optimizer_states=(state(**right),))) == []


# -- NH402: ranks --------------------------------------------------------------------------------------------------


def ranks(*strides: tuple[int, ...], shape: tuple[int, ...] = WEIGHT) -> tuple[RankLayout, ...]:
    return tuple(RankLayout(number, (("body.weight", shape, each),)) for number, each in enumerate(strides))


def test_nh402_ranks_hold_a_tensor_in_different_layouts() -> None:
    (finding,) = find(Step().trace(ranks=ranks(IN_LAST, IN_LAST, IN_FIRST)))
    assert (finding.code, finding.severity, finding.module, finding.calls) == ("NH402", Severity.ERROR, "body", 1)
    assert f"strides {IN_LAST} on rank 0, {IN_FIRST} on rank 2" in finding.message


@pytest.mark.parametrize(
    "layouts",
    [
        (),
        ranks(IN_LAST),
        ranks(IN_FIRST, IN_FIRST),
        ranks((9, 9, 3, 1), (9, 1, 3, 1), shape=(8, 1, 3, 3)),
    ],
    ids=["no group", "one rank", "equal", "the same bytes"],
)
def test_nh402_not_where_a_collective_is_right(layouts: tuple[RankLayout, ...]) -> None:
    assert find(Step().trace(ranks=layouts)) == []


# -- NH403: raising ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operator", "advice"), [("view", "reshape"), ("pixel_shuffle", "contiguous")])
def test_nh403_names_the_operator_that_raised(operator: str, advice: str) -> None:
    step = Step()
    step.call(operator, [step.input()], (), module="head")
    error = StepError("RuntimeError", "view size is not compatible", 0)
    (finding,) = find(step.trace(error=error))
    assert (finding.code, finding.severity, finding.operator, finding.module) == (
        "NH403",
        Severity.ERROR,
        operator,
        "head",
    )
    assert str(finding.source) == "/model.py:1"
    assert "view size is not compatible" in finding.message
    assert advice in finding.advice


def test_nh403_without_a_call_names_the_exception() -> None:
    (finding,) = find(Step().trace(error=StepError("ValueError", "no operator raised this", None)))
    assert (finding.code, finding.operator, finding.source) == ("NH403", "ValueError", None)


def test_nh403_not_for_a_step_that_ran() -> None:
    step = Step()
    step.call("view", [step.input()], ())
    assert find(step.trace()) == []
