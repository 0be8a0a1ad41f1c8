"""NH201 to NH205: formats that get lost or cost, each with one that fires and a near miss that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rules.builder import FIRST, LAST, SHAPE, Step, copied

import nhwc.kernels
from nhwc.model import Phase, Reorder, Severity
from nhwc.rules import find, nh205_slow_in_channels_last

BYTES = 2 * 8 * 4 * 4 * 4
WEIGHT = (8, 8, 3, 3)
VOLUME = (2, 8, 4, 4, 4)


def only(step: Step, *codes: str) -> list[tuple[str, str, int]]:
    """(code, operator, bytes) of what these rules find."""
    return [(finding.code, finding.operator, finding.bytes) for finding in find(step.trace(), codes)]


# -- NH201: written in the other format ----------------------------------------------------------------------------


def test_nh201_reads_channels_last_and_writes_contiguous() -> None:
    step = Step()
    step.call("cumsum", [step.input()], step.tensor(SHAPE, FIRST))
    assert only(step, "NH201") == [("NH201", "cumsum", BYTES)]


def test_nh201_in_three_dimensions() -> None:
    step = Step()
    step.call(
        "_adaptive_avg_pool3d", [step.input(VOLUME)], step.tensor((2, 8, 2, 2, 2), FIRST), caller="adaptive_avg_pool3d"
    )
    assert only(step, "NH201") == [("NH201", "adaptive_avg_pool3d", 2 * 8 * 8 * 4)]


@pytest.mark.parametrize("shape", [(2, 8, 1, 1), (2, 1, 4, 4), (2, 128)])
def test_nh201_not_a_result_that_lies_in_both_formats_or_is_no_image(shape: tuple[int, ...]) -> None:
    step = Step()
    step.call("mean", [step.input()], step.tensor(shape, FIRST))
    assert find(step.trace()) == []


def test_nh201_not_a_view() -> None:
    step = Step()
    x = step.input()
    step.view("permute", x, (2, 4, 4, 8), (128, 32, 8, 1))
    assert find(step.trace()) == []


def test_nh201_not_a_factory_that_only_takes_the_shape() -> None:
    step = Step()
    step.call("new_zeros", [step.input()], step.tensor(SHAPE, FIRST))
    assert find(step.trace()) == []


def test_nh201_not_where_the_kernel_copies_for_then_nh102_tells() -> None:
    step = Step()
    x = step.input(VOLUME)
    step.call("avg_pool3d", [x], step.tensor((2, 8, 2, 2, 2), FIRST), copies=(copied(x, FIRST),))
    assert [finding.code for finding in find(step.trace())] == ["NH102"]


@pytest.mark.parametrize("shape", [VOLUME, (1, 1, 4, 4, 4)], ids=["channels_last_3d", "both"])
def test_nh201_convolution_picks_a_backend_that_writes_contiguous(shape: tuple[int, ...]) -> None:
    step = Step()
    weight = step.parameter("w", (8, shape[1], 3, 3, 3))
    step.parameter("elsewhere", (8, 8, 3, 3, 3))
    step.convolution(step.input(shape), weight, FIRST)
    (finding,) = find(step.trace(), ["NH201"])
    assert "torch picked a backend" in finding.message
    assert "production shapes" in finding.advice


def test_nh102_convolution_whose_backend_copies_is_advised_the_same() -> None:
    step = Step()
    x = step.input(VOLUME)
    step.convolution(x, step.parameter("w", (8, 8, 3, 3, 3)), FIRST, copies=[copied(x, FIRST)])
    (finding,) = find(step.trace())
    assert finding.code == "NH102"
    assert "production shapes" in finding.advice


def test_nh201_not_a_convolution_in_a_contiguous_model() -> None:
    step = Step()
    step.convolution(step.input(VOLUME, FIRST), step.parameter("w", (8, 8, 3, 3, 3), FIRST), FIRST)
    assert only(step, "NH201") == []


# -- NH202: mixed operands -----------------------------------------------------------------------------------------


def test_nh201_answers_for_its_call_before_the_weight_that_it_copies_too() -> None:
    step = Step()
    weight = step.parameter("w", (8, 8, 3, 3, 3))
    lost = step.convolution(step.input(VOLUME), weight, FIRST, copies=[copied(weight, FIRST)], module="a")
    step.convolution(lost, weight, FIRST, module="b")
    culprit, *consequences = find(step.trace())
    assert (culprit.code, culprit.module) == ("NH201", "a")
    assert sorted((f.code, f.module, f.cause) for f in consequences) == [
        ("NH105", "a", culprit.id),
        ("NH204", "b", culprit.id),
    ]


def test_nh202_contiguous_operand_drags_all_along() -> None:
    step = Step()
    x, pos = step.input(), step.parameter("pos", SHAPE, FIRST)
    step.call("add", [pos, x], step.tensor(SHAPE, FIRST))
    (finding,) = find(step.trace())
    assert (finding.code, finding.bytes, finding.cause) == ("NH202", BYTES, None)
    assert "pos, which is contiguous" in finding.message


def test_nh202_not_where_the_result_keeps_channels_last() -> None:
    step = Step()
    x, pos = step.input(), step.parameter("pos", SHAPE, FIRST)
    step.call("add", [x, pos], step.tensor(SHAPE, LAST))
    assert find(step.trace()) == []


def test_nh202_follows_from_the_culprit_that_lost_the_other_operand() -> None:
    step = Step()
    x = step.input()
    lost = step.call("cumsum", [x], step.tensor(SHAPE, FIRST))
    step.call("cat", [x, lost], step.tensor((2, 16, 4, 4), FIRST))
    culprit, consequence = find(step.trace())
    assert (culprit.code, consequence.code, consequence.cause) == ("NH201", "NH202", culprit.id)


def test_nh202_names_the_call_that_made_the_operand() -> None:
    step = Step()
    x = step.input()
    made = step.call("new_full", [x], step.tensor((2, 2, 4, 4), FIRST), module="coordinates")
    step.call("fill_", [made], made, mutates=(0,))  # writing to it later does not make it
    step.call("cat", [x, made], step.tensor((2, 10, 4, 4), FIRST))
    (finding,) = find(step.trace())
    assert "new_full in coordinates (/model.py:1)" in finding.message
    assert "memory_format=torch.channels_last" in finding.advice


# -- NH203: gradients ----------------------------------------------------------------------------------------------


def pooled(step: Step, gradient: str) -> None:
    """Global pooling whose backward expands the gradient and divides it into a tensor of that format."""
    x = step.call("relu", [step.input()])
    step.call("mean", [x], step.tensor((2, 8, 1, 1)), caller="adaptive_avg_pool2d", module="pool")
    coming = step.tensor((2, 8, 1, 1))
    wide = step.view("expand", coming, SHAPE, (8, 1, 0, 0), phase=Phase.BACKWARD, forward=1, module="pool")
    step.call("div", [wide], step.tensor(SHAPE, gradient), phase=Phase.BACKWARD, forward=1, module="pool")


def test_nh203_gradient_lies_other_than_its_activation() -> None:
    step = Step()
    pooled(step, FIRST)
    (finding,) = find(step.trace())
    assert (finding.code, finding.module, finding.phase, finding.bytes) == ("NH203", "pool", Phase.BACKWARD, BYTES)
    assert "the backward of adaptive_avg_pool2d (div)" in finding.message


def test_nh203_not_a_gradient_in_the_format_of_its_activation() -> None:
    step = Step()
    pooled(step, LAST)
    assert find(step.trace()) == []


def test_nh203_not_in_a_contiguous_model() -> None:
    step = Step()
    x = step.call("relu", [step.input(SHAPE, FIRST)])
    step.call("mean", [x], step.tensor((2, 8, 1, 1)))
    wide = step.view("expand", step.tensor((2, 8, 1, 1)), SHAPE, (8, 1, 0, 0), phase=Phase.BACKWARD, forward=1)
    step.call("div", [wide], step.tensor(SHAPE, FIRST), phase=Phase.BACKWARD, forward=1)
    assert find(step.trace()) == []


def test_nh203_not_a_channel_slice_of_a_channels_last_gradient() -> None:
    step = Step()
    x = step.call("relu", [step.input((2, 4, 4, 4))])
    step.call("cat", [x, x], step.tensor(SHAPE))
    gradient = step.tensor(SHAPE)
    step.view("slice", gradient, (2, 4, 4, 4), gradient.strides, phase=Phase.BACKWARD, forward=1)
    assert find(step.trace()) == []


def test_nh203_not_the_gradient_of_a_weight() -> None:
    """NH301 compares those with their parameters, after the step."""
    step = Step()
    weight = step.parameter("w", WEIGHT)
    step.call("linalg_vector_norm", [weight], step.tensor((8, 1, 1, 1)))
    step.call("div", [step.tensor((8, 1, 1, 1))], step.tensor(WEIGHT, FIRST), phase=Phase.BACKWARD, forward=0)
    assert only(step, "NH203") == []


def test_nh203_consequences_carry_on_through_the_backward() -> None:
    step = Step()
    pooled(step, FIRST)
    gradient, x = step.calls[-1].outputs[0], step.calls[0].inputs[0]
    spoiled = step.tensor(SHAPE, FIRST)
    step.call("hardtanh_backward", [gradient, x], spoiled, phase=Phase.BACKWARD, forward=0)
    weight = step.parameter("w", WEIGHT)
    step.call(
        "convolution_backward",
        [spoiled, x, weight],
        [step.tensor(SHAPE), step.tensor(WEIGHT)],
        phase=Phase.BACKWARD,
        copies=(copied(spoiled, LAST),),
    )
    culprit, *consequences = find(step.trace())
    assert culprit.code == "NH203"
    assert sorted((f.operator, f.cause) for f in consequences) == [
        ("convolution_backward", culprit.id),
        ("hardtanh_backward", culprit.id),
    ]


# -- NH204: convolutions in contiguous -----------------------------------------------------------------------------


def test_nh204_a_contiguous_model_is_one_finding() -> None:
    step = Step()
    x = step.input(SHAPE, FIRST)
    for name in ("a", "b"):
        reorders = [Reorder("oneDNN", operand, "abcd", "acdb", SHAPE, BYTES, 0.1) for operand in ("src", "dst")]
        x = step.convolution(x, step.parameter(name, WEIGHT, FIRST), FIRST, module=name, reorders=reorders)
    (finding,) = find(step.trace())
    assert (finding.code, finding.module, finding.calls, finding.bytes) == ("NH204", "", 2, 4 * BYTES)
    assert "nhwc.convert" in finding.advice


def test_nh204_convolution_that_stays_contiguous_behind_a_culprit() -> None:
    step = Step()
    lost = step.call("cumsum", [step.input()], step.tensor(SHAPE, FIRST))
    step.convolution(lost, step.parameter("w", WEIGHT), FIRST, module="after")
    culprit, consequence = find(step.trace())
    assert (consequence.code, consequence.module, consequence.cause) == ("NH204", "after", culprit.id)


def test_nh204_not_a_convolution_that_answers_in_channels_last() -> None:
    step = Step()
    x = step.input(SHAPE, FIRST)
    step.convolution(x, step.parameter("w", WEIGHT), LAST)
    assert only(step, "NH204") == []


def test_nh204_not_where_the_copy_inside_is_told() -> None:
    step = Step()
    x = step.input(SHAPE, FIRST)
    step.convolution(x, step.parameter("w", WEIGHT), FIRST, copies=[copied(x, LAST)])
    assert [finding.code for finding in find(step.trace())] == ["NH102"]


# -- NH205: kept, and slow -----------------------------------------------------------------------------------------


def test_nh205_is_a_note_until_it_is_measured() -> None:
    step = Step()
    step.call("native_group_norm", [step.input()], caller="group_norm")
    (finding,) = find(step.trace())
    assert (finding.code, finding.operator, finding.severity) == ("NH205", "group_norm", Severity.NOTE)


def test_nh205_not_of_nhwcs_own_kernel() -> None:
    step = Step()
    x = step.input()
    step.call("native_group_norm", [x], caller="group_norm")
    step.call("_softmax", [x], caller="softmax")
    assert [finding.operator for finding in find(step.trace(kernels=("cat", "group_norm")), ["NH205"])] == ["softmax"]
    assert find(step.trace(kernels=("group_norm", "softmax")), ["NH205"]) == []


def test_nh205_names_kernels_that_replace_its_operators() -> None:
    for device in nh205_slow_in_channels_last.SLOW.values():
        for operator, kernel in device.items():
            found = nhwc.kernels.replacing(operator)
            assert found is not None
            assert found.name == kernel


def test_nh205_not_in_contiguous_and_not_on_a_device_without_measurements() -> None:
    step = Step()
    step.call("native_group_norm", [step.input(SHAPE, FIRST)])
    elsewhere = replace(step.input(), device="cuda:0")
    step.call("native_group_norm", [elsewhere], replace(step.tensor(SHAPE), device="cuda:0"))
    assert find(step.trace()) == []


def test_nh201_not_places_beside_values_that_keep_the_format() -> None:
    step = Step()
    values, places = step.tensor((3, 8, 2, 2), LAST), replace(step.tensor((3, 8, 2, 2), FIRST), dtype="int32")
    step.call("roi_pool", [step.input()], [values, places])
    assert find(step.trace()) == []


def test_nh201_places_alone_are_what_an_operator_writes() -> None:
    step = Step()
    step.call("argsort", [step.input()], replace(step.tensor(SHAPE, FIRST), dtype="int64"))
    (finding,) = find(step.trace(), ["NH201"])
    assert finding.operator == "argsort"


def test_nh202_not_the_gradient_of_a_contiguous_weight() -> None:
    step = Step()
    x, gradient, weight = step.input(), step.tensor(SHAPE, LAST), step.parameter("w", WEIGHT, FIRST)
    outputs = [step.tensor(SHAPE, LAST), step.tensor(WEIGHT, FIRST)]
    step.call("_deform_conv2d_backward", [gradient, x, weight], outputs, phase=Phase.BACKWARD)
    assert find(step.trace(), ["NH201", "NH202"]) == []
