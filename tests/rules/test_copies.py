"""NH101 to NH105: copies between formats, each with one that fires and a near miss that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rules.builder import FIRST, LAST, SHAPE, Step, copied

from nhwc.model import InnerCopy, Phase, Reorder, Severity
from nhwc.rules import find

BYTES = 2 * 8 * 4 * 4 * 4
WEIGHT = (8, 8, 3, 3)


def only(step: Step, *codes: str) -> list[tuple[str, str, int]]:
    """(code, operator, bytes) of what these rules find."""
    return [(finding.code, finding.operator, finding.bytes) for finding in find(step.trace(), codes)]


# -- NH101: explicit copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["clone", "contiguous", "reshape", "flatten", "to"])
def test_nh101_copy_to_contiguous(caller: str) -> None:
    step = Step()
    x = step.input()
    step.call("clone", [x], step.tensor(SHAPE, FIRST), caller=caller)
    assert only(step, "NH101") == [("NH101", caller, BYTES)]


def test_nh101_copy_back_to_channels_last_follows_from_what_lost_it() -> None:
    step = Step()
    x = step.input()
    lost = step.call("clone", [x], step.tensor(SHAPE, FIRST), caller="contiguous")
    step.call("clone", [lost], step.tensor(SHAPE, LAST), caller="to")
    first, second = find(step.trace(), ["NH101"])
    assert (first.cause, second.cause) == (None, first.id)
    assert second.message.startswith("to copies the contiguous result of contiguous (/model.py:1) back")


@pytest.mark.parametrize(("before", "after"), [(LAST, LAST), (FIRST, FIRST)])
def test_nh101_not_a_copy_within_one_format(before: str, after: str) -> None:
    step = Step()
    x = step.input(SHAPE, before)
    step.call("clone", [x], step.tensor(SHAPE, after))
    assert only(step, "NH101") == []


def test_nh101_not_a_copy_that_closes_the_gaps_of_a_channel_slice() -> None:
    step = Step()
    x = step.input()
    piece = step.view("slice", x, (2, 4, 4, 4), x.strides)
    step.call("clone", [piece], step.tensor((2, 4, 4, 4), LAST), caller="contiguous")
    assert only(step, "NH101") == []


def test_nh101_not_a_copy_of_what_lies_in_both_formats() -> None:
    step = Step()
    x = step.input((2, 8, 1, 1))
    step.call("clone", [x], step.tensor((2, 8, 1, 1), FIRST), caller="flatten")
    assert only(step, "NH101") == []


def test_nh101_in_place_copy_into_a_contiguous_buffer() -> None:
    step = Step()
    x, buffer = step.input(), step.tensor(SHAPE, FIRST)
    step.call("copy_", [buffer, x], buffer, mutates=(0,))
    relu = step.call("relu", [buffer])
    step.convolution(relu, step.parameter("w", WEIGHT), copies=[copied(relu, LAST)], module="after")
    culprit, consequence = find(step.trace(), ["NH101", "NH102"])
    assert (culprit.code, culprit.operator, culprit.bytes) == ("NH101", "copy_", BYTES)
    assert (consequence.module, consequence.cause) == ("after", culprit.id)


def test_nh101_copy_of_tokens_that_become_an_image() -> None:
    step = Step()
    tokens = step.input((2, 8, 16), strides=(128, 1, 8))
    made = step.call("clone", [tokens], step.tensor((2, 8, 16), FIRST), caller="contiguous")
    image = step.view("view", made, SHAPE, (128, 16, 4, 1))
    step.convolution(image, step.parameter("w", WEIGHT), copies=[copied(image, LAST)])
    culprit, consequence = find(step.trace(), ["NH101", "NH102"])
    assert (culprit.code, culprit.bytes) == ("NH101", BYTES)
    assert consequence.cause == culprit.id


def test_nh101_not_a_copy_of_tokens_that_stay_tokens() -> None:
    step = Step()
    tokens = step.input((2, 8, 16), strides=(128, 1, 8))
    step.call("clone", [tokens], step.tensor((2, 8, 16), FIRST), caller="contiguous")
    assert only(step, "NH101") == []


@pytest.mark.parametrize("batch", [1, 2])
def test_nh101_windows_that_become_an_image(batch: int) -> None:
    """Attention over windows goes back to an image by permuting six dimensions and a reshape that writes planes."""
    step = Step()
    windows = step.input((batch, 8, 2, 2, 2, 2), strides=(128, 1, 64, 16, 32, 8))
    made = step.call("clone", [windows], step.tensor((batch, 8, 2, 2, 2, 2), FIRST), caller="reshape")
    image = step.view("_unsafe_view", made, (batch, 8, 4, 4), (128, 16, 4, 1))
    step.convolution(image, step.parameter("w", WEIGHT), copies=[copied(image, LAST)])
    culprit, consequence = find(step.trace(), ["NH101", "NH102"])
    assert (culprit.code, culprit.operator, culprit.bytes) == ("NH101", "reshape", batch * BYTES // 2)
    assert consequence.cause == culprit.id


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((2, 8, 4, 4), (8, 1, 64, 16)), ((2, 8, 16), (8, 1, 16))],
    ids=["heads inside", "batch inside"],
)
def test_nh101_tokens_whose_batch_is_not_outermost(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    step = Step()
    made = step.call("clone", [step.input(shape, strides=strides)], step.tensor(shape, FIRST), caller="contiguous")
    image = step.view("view", made, SHAPE, (128, 16, 4, 1))
    step.convolution(image, step.parameter("w", WEIGHT), copies=[copied(image, LAST)])
    culprit, consequence = find(step.trace(), ["NH101", "NH102"])
    assert (culprit.code, culprit.bytes) == ("NH101", BYTES)
    assert "channels lie side by side" in culprit.message
    assert consequence.cause == culprit.id


def test_nh101_not_one_row_repeated_into_an_image() -> None:
    """``coordinates[:, 0] = torch.linspace(-1, 1, w)``"""
    step = Step()
    step.input()
    coordinates = step.tensor((2, 2, 4, 4), FIRST)
    step.call("relu", [coordinates], step.tensor((2, 2, 4, 4), FIRST))
    channel = step.view("select", coordinates, (2, 4, 4), (32, 4, 1))
    step.call("copy_", [channel, step.tensor((2, 4, 4), strides=(0, 0, 1))], channel, mutates=(0,))
    assert only(step, "NH101") == []


def test_nh101_not_heads_brought_before_tokens() -> None:
    """(N, L, heads, D) transposed for attention: channels are the last dimension before and after."""
    step = Step()
    heads = step.view("transpose", step.input((2, 16, 4, 8), FIRST), (2, 4, 16, 8), (512, 8, 32, 1))
    step.call("clone", [heads], step.tensor((2, 4, 16, 8), FIRST), caller="contiguous")
    assert only(step, "NH101") == []


def test_nh101_not_windows_whose_channels_stay_last() -> None:
    step = Step()
    windows = step.input((2, 2, 2, 2, 2, 8), strides=(128, 64, 16, 32, 8, 1))
    made = step.call("clone", [windows], step.tensor((2, 2, 2, 2, 2, 8), FIRST), caller="reshape")
    step.view("_unsafe_view", made, (2, 4, 4, 8), (128, 32, 8, 1))
    assert only(step, "NH101") == []


def channel_shuffle(step: Step, x, **fields):
    """view, transpose, contiguous, view, as torchvision's ShuffleNet writes it."""
    n, c, h, w = x.strides
    split = step.view("view", x, (2, 2, 4, 4, 4), (n, 4 * c, c, h, w))
    turned = step.view("transpose", split, (2, 4, 2, 4, 4), (n, c, 4 * c, h, w))
    made = step.call("clone", [turned], step.tensor((2, 4, 2, 4, 4), FIRST), caller="contiguous", **fields)
    return step.view("view", made, SHAPE, (128, 16, 4, 1))


def test_nh101_channel_shuffle_advises_the_operator_for_it() -> None:
    step = Step()
    channel_shuffle(step, step.input())
    (finding,) = find(step.trace())
    assert (finding.code, finding.bytes) == ("NH101", BYTES)
    assert "torch.channel_shuffle" in finding.advice


def test_nh101_second_shuffle_is_a_culprit_of_its_own_although_it_is_given_contiguous() -> None:
    step = Step()
    channel_shuffle(step, channel_shuffle(step, step.input(), module="a"), module="b")
    findings = find(step.trace())
    assert [(f.module, f.cause) for f in findings] == [("a", None), ("b", None)]
    assert "whatever it is given" in findings[1].message


def test_nh101_not_a_shuffle_in_a_model_that_is_contiguous_throughout() -> None:
    step = Step()
    channel_shuffle(step, step.input(SHAPE, FIRST))
    assert find(step.trace()) == []


# -- NH102: hidden copies ------------------------------------------------------------------------------------------


def test_nh102_copy_called_by_a_composite_operator() -> None:
    step = Step()
    step.call("clone", [step.input()], step.tensor(SHAPE, FIRST), caller="instance_norm", module="norm")
    (finding,) = find(step.trace())
    assert (finding.code, finding.operator, finding.module, finding.bytes) == ("NH102", "instance_norm", "norm", BYTES)
    assert "group_norm" in finding.advice


def test_nh102_copy_of_a_repeated_tensor() -> None:
    """repeat_interleave expands and clones: the second one only goes on in the format that it is given."""
    step = Step()
    x = step.input()
    wide = step.view("expand", x, (2, 8, 4, 2, 4), (128, 1, 32, 0, 8), caller="repeat_interleave")
    made = step.call("clone", [wide], step.tensor((2, 8, 4, 2, 4), FIRST), caller="repeat_interleave")
    image = step.view("view", made, (2, 8, 8, 4), (256, 32, 4, 1))
    again = step.view("expand", image, (2, 8, 8, 4, 2), (256, 32, 4, 1, 0), caller="repeat_interleave")
    made = step.call("clone", [again], step.tensor((2, 8, 8, 4, 2), FIRST), caller="repeat_interleave")
    image = step.view("view", made, (2, 8, 8, 8), (512, 64, 8, 1))
    step.convolution(image, step.parameter("w", WEIGHT), copies=[copied(image, LAST)], module="after")
    culprit, consequence = find(step.trace(), ["NH101", "NH102", "NH201"])
    assert (culprit.operator, culprit.bytes, culprit.calls) == ("repeat_interleave", 2 * BYTES, 1)
    assert (consequence.module, consequence.cause) == ("after", culprit.id)


def test_nh102_copy_inside_a_kernel() -> None:
    step = Step()
    x = step.input()
    step.call("roi_align", [x], step.tensor((3, 8, 2, 2), FIRST), copies=(copied(x, FIRST),))
    (finding,) = find(step.trace())
    assert (finding.code, finding.operator, finding.bytes, finding.cause) == ("NH102", "roi_align", BYTES, None)
    assert "nhwc.kernels.use('roi_align')" in finding.advice


def test_nh102_not_a_cat_that_writes_a_contiguous_operand_where_it_belongs() -> None:
    step = Step()
    x, y = step.input(), step.input(SHAPE, FIRST)
    wide = (2, 16, 4, 4)
    step.call("cat", [x, y], step.tensor(wide, LAST), copies=(copied(y, LAST),))
    assert only(step, "NH102", "NH202") == []
    step.call("cat", [x, y], step.tensor(wide, FIRST), copies=(copied(x, FIRST),))
    assert [code for code, _, _ in only(step, "NH102", "NH202")] != []


def test_nh102_not_a_kernel_that_copies_in_contiguous_too() -> None:
    """interpolate of a one-pixel map, whose strides hold in both formats."""
    step = Step()
    pixel = step.input((2, 8, 1, 1), FIRST)
    inside = InnerCopy("aten::copy_", step.tensor(SHAPE, LAST), step.tensor(SHAPE, FIRST))
    step.call("upsample_bilinear2d", [pixel], step.tensor(SHAPE, FIRST), copies=(inside,))
    assert only(step, "NH102") == []
    step.call("upsample_bilinear2d", [step.input()], step.tensor(SHAPE, FIRST), copies=(inside,))
    assert [code for code, _, _ in only(step, "NH102")] == ["NH102"]


def test_nh102_counts_every_copy_inside_a_backward() -> None:
    step = Step()
    gradient, x = step.tensor(SHAPE, FIRST), step.input()
    weight = step.parameter("w", WEIGHT)
    back = step.tensor(SHAPE, LAST)
    step.call(
        "convolution_backward",
        [gradient, x, weight],
        [back, step.tensor(WEIGHT, LAST)],
        phase=Phase.BACKWARD,
        copies=(copied(gradient, LAST), copied(step.tensor(WEIGHT, FIRST), LAST)),
    )
    (finding,) = find(step.trace(), ["NH102"])
    assert finding.bytes == BYTES + 8 * 8 * 9 * 4
    assert "(2 copies)" in finding.message


def test_nh102_not_a_copy_inside_a_kernel_within_one_order() -> None:
    step = Step()
    x = step.input()
    piece = step.view("slice", x, (2, 4, 4, 4), x.strides)
    step.call("native_batch_norm", [piece], step.tensor((2, 4, 4, 4), LAST), copies=(copied(piece, LAST),))
    assert find(step.trace()) == []


def test_nh102_not_a_kernel_that_puts_transposed_tokens_in_order() -> None:
    """(windows, tokens) swapped by a view before layer_norm: neither end is an image."""
    step = Step()
    tokens = step.view("transpose", step.input((1, 49, 64, 8), FIRST), (1, 64, 49, 8), (25088, 8, 512, 1))
    step.call("native_layer_norm", [tokens], step.tensor((1, 64, 49, 8), FIRST), copies=(copied(tokens, FIRST),))
    assert only(step, "NH102") == []


def test_nh102_not_the_optimizer() -> None:
    step = Step()
    x = step.input()
    step.call("addcdiv_", [x], step.tensor(SHAPE, FIRST), phase=Phase.OPTIMIZER, copies=(copied(x, FIRST),))
    assert find(step.trace()) == []


# -- NH103, NH104: what libraries reorder --------------------------------------------------------------------------


def reorder(operand: str, source: str = "abcd", target: str = "acdb", nbytes: int = BYTES) -> Reorder:
    return Reorder("oneDNN", operand, source, target, SHAPE, nbytes, 0.5)


def test_nh103_library_reorders_an_activation() -> None:
    step = Step()
    step.convolution(step.input(), step.parameter("w", WEIGHT), reorders=[reorder("src", "acdb", "aBcd8b")])
    (finding,) = find(step.trace(), ["NH103"])
    assert (finding.code, finding.operator, finding.bytes) == ("NH103", "conv2d", BYTES)


def test_nh103_not_a_change_of_type_within_one_format() -> None:
    step = Step()
    step.convolution(step.input(), step.parameter("w", WEIGHT), reorders=[reorder("src", "acdb", "acdb")])
    assert only(step, "NH103") == []


def test_nh103_not_where_the_whole_convolution_runs_contiguous() -> None:
    step = Step()
    x = step.input(SHAPE, FIRST)
    step.convolution(x, step.parameter("w", WEIGHT, FIRST), FIRST, reorders=[reorder("src"), reorder("dst")])
    assert only(step, "NH103") == []


def test_nh104_weights_are_one_note_for_the_model() -> None:
    step = Step()
    x = step.input()
    for name in ("a", "b"):
        x = step.convolution(x, step.parameter(name, WEIGHT), reorders=[reorder("weights", "acdb", "Acdb8a", 64)])
    (finding,) = find(step.trace())
    assert (finding.code, finding.severity, finding.calls, finding.bytes) == ("NH104", Severity.NOTE, 2, 128)
    assert finding.ms == 1.0


def backward_of_convolution(step: Step, gradient_memory: int) -> None:
    made = replace(step.tensor(WEIGHT, FIRST), storage=gradient_memory)
    step.call(
        "convolution_backward",
        [step.tensor(SHAPE), step.input(), step.parameter("w", WEIGHT)],
        [step.tensor(SHAPE), step.tensor(WEIGHT)],
        phase=Phase.BACKWARD,
        copies=(copied(made, LAST),),
    )


def test_nh104_tells_of_weight_gradients() -> None:
    """A gradient that the kernel made lies in memory that is no operand's."""
    step = Step()
    backward_of_convolution(step, gradient_memory=-1)
    (finding,) = find(step.trace())
    assert (finding.code, finding.calls, finding.bytes) == ("NH104", 1, 8 * 8 * 9 * 4)


def test_nh104_not_without_weights() -> None:
    step = Step()
    step.convolution(step.input(), step.parameter("w", WEIGHT), reorders=[reorder("src")])
    assert only(step, "NH104") == []


# -- NH105: weights copied at every call ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strides", "problem"),
    [
        ((72, 9, 3, 1), "it is contiguous while"),
        ((1, 8, 192, 64), "it is a permuted view"),
        ((72, 1, 24, 8), "reads contiguous"),
    ],
    ids=["contiguous", "permuted", "channels_last"],
)
def test_nh105_weight_copied_at_every_call(strides: tuple[int, ...], problem: str) -> None:
    step = Step()
    weight = step.parameter("w", WEIGHT, strides=strides)
    to = FIRST if strides[1] == 1 and strides[0] == 72 else LAST
    step.convolution(step.input(), weight, copies=[copied(weight, to)])
    (finding,) = find(step.trace())
    assert (finding.code, finding.bytes, finding.cause) == ("NH105", 8 * 8 * 9 * 4, None)
    assert problem in finding.message


def test_nh105_not_where_the_activation_is_copied_too() -> None:
    step = Step()
    x, weight = step.input(SHAPE, FIRST), step.parameter("w", WEIGHT, FIRST)
    step.convolution(x, weight, copies=[copied(x, LAST), copied(weight, LAST)])
    (finding,) = find(step.trace(), ["NH102", "NH105"])
    assert (finding.code, finding.bytes) == ("NH102", BYTES + 8 * 8 * 9 * 4)


def test_nh105_not_a_weight_that_stays_as_it_is() -> None:
    step = Step()
    weight = step.parameter("w", WEIGHT)
    step.convolution(step.input(), weight, copies=[copied(weight, LAST)])
    assert find(step.trace()) == []
