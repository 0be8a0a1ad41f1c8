"""Reorders inside oneDNN: lines of several versions, operands by name, and lines that are not ours to read."""

from __future__ import annotations

import pytest
import torch
from recorder.conftest import TRAIN
from recorder.test_calls import calls, only
from torch import nn

from nhwc.model import Reorder
from nhwc.recorder import library, record
from nhwc.recorder.library import name_operand, parse_reorder

HEAD = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
LINES = {
    HEAD + "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,attr-scratchpad:user,,2x8x16x16,0.017": Reorder(
        "oneDNN", "", "abcd", "acdb", (2, 8, 16, 16), 4 * 2 * 8 * 256, 0.017
    ),
    # padded to blocks, to another type
    HEAD
    + "src:f32::blocked:abcde::f0 dst:bf16:p:blocked:Abcde16a::f0,attr-scratchpad:user,,8x1x1x3x3,0.00195312": Reorder(
        "oneDNN", "", "abcde", "Abcde16a", (8, 1, 1, 3, 3), 2 * 72, 0.00195312
    ),
    # quantized, with scales
    HEAD
    + "src:f32::blocked:abcd::f0 dst:s8::blocked:acdb::f0,"
    + "attr-scales:src0:0:f32 attr-zero-points:dst0:0:s32,,1x2x3x4,1": Reorder(
        "oneDNN", "", "abcd", "acdb", (1, 2, 3, 4), 24, 1.0
    ),
    # without the "primitive" field, as before 3.3
    "onednn_verbose,v1,exec,cpu,reorder,jit:blk,undef,"
    "src:f32::blocked:abcd::f0 dst:f32::blocked:aBcd8b::f0,,,1x8x2x2,0.5": Reorder(
        "oneDNN", "", "abcd", "aBcd8b", (1, 8, 2, 2), 128, 0.5
    ),
    # without the version, with the type after an underscore, as before 3.1
    "onednn_verbose,exec,cpu,reorder,jit:uni,undef,"
    "src_f32::blocked:abcd:f0 dst_f32::blocked:acdb:f0,,,2x3x4x5,0.0109863": Reorder(
        "oneDNN", "", "abcd", "acdb", (2, 3, 4, 5), 480, 0.0109863
    ),
    # with a time stamp
    "onednn_verbose,v1,1693533460.193000,primitive,exec,cpu,reorder,jit:uni,undef,"
    "src:f32::blocked:ab::f0 dst:f32::blocked:AB16b64a::f0,,,64x128,0.02": Reorder(
        "oneDNN", "", "ab", "AB16b64a", (64, 128), 4 * 64 * 128, 0.02
    ),
    # a time that cannot be read
    HEAD + "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x8x16x16,-nan(ind)x": Reorder(
        "oneDNN", "", "abcd", "acdb", (2, 8, 16, 16), 4 * 2 * 8 * 256, None
    ),
}

OTHERS = [
    "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 0)",
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,memory_descriptors,time",
    (
        "onednn_verbose,v1,primitive,create:cache_miss,cpu,reorder,jit:uni,undef,"
        "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x8x16x16,0.017"
    ),
    (
        "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward_training,src:f32:a:blocked:abcd::f0 "
        "wei:f32:a:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd16b::f0,,alg:direct,mb2_ic8,0.03"
    ),
    HEAD + "src:f32::blocked:a::f0 dst:f32::blocked:a::f0,attr-scratchpad:user,,16,0.00292969",
    HEAD + "src:f32::blocked:abcd::f0,,,2x8x16x16,0.017",
    HEAD + "src:f32 dst:f32,,,2x8x16x16,0.017",
    HEAD + "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x?x16x16,0.017",
    HEAD + "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,,",
    "onednn_verbose,exec,reorder",
    "onednn_verbose,",
    "a user's line: onednn_verbose,v1,primitive,exec,cpu,reorder,,,,",
    "",
]


@pytest.mark.parametrize("line", LINES)
def test_a_reorder_is_read(line: str) -> None:
    assert parse_reorder(line.encode()) == LINES[line]
    assert parse_reorder(line.encode() + b"\r\n") == LINES[line]


@pytest.mark.parametrize("line", OTHERS)
def test_any_other_line_is_left_out(line: str) -> None:
    assert parse_reorder(line.encode()) is None
    assert library.between(b"\xff\xfe\n" + line.encode() + b"\n", 0, 10_000) == []


def test_a_line_that_is_cut_anywhere_does_not_raise() -> None:
    for line in [*LINES, *OTHERS]:
        for end in range(len(line)):
            parse_reorder(line[:end].encode())


def test_only_what_was_printed_during_the_call_counts() -> None:
    line = next(iter(LINES)).encode() + b"\n"
    assert len(library.between(line * 3, len(line), 2 * len(line))) == 1
    # after a user's text without a line end, the position is inside a line
    assert len(library.between(b"working..." + line, len(b"working..."), 10_000)) == 1


def reorder(*shape: int) -> Reorder:
    return Reorder("oneDNN", "", "a", "b", shape, 0)


@pytest.mark.parametrize(
    ("dims", "weights", "transposed"),
    [
        ((16, 8, 3, 3), (16, 8, 3, 3), False),
        ((2, 8, 4, 3, 3), (16, 4, 3, 3), False),  # two groups
        ((8, 1, 1, 3, 3), (8, 1, 3, 3), False),  # depthwise
        ((16, 8, 3, 3), (8, 16, 3, 3), True),
        ((2, 8, 4, 3, 3), (8, 8, 3, 3), True),  # two groups: (in, out / 2, ...)
        ((2, 4, 8, 3, 3), (8, 8, 3, 3), True),  # their gradient comes the other way
        ((16, 8, 1, 3), (16, 8, 3), False),  # 1-D
        ((2, 8, 4, 1, 3), (16, 4, 3), False),  # 1-D, two groups
        ((16, 8, 3, 3, 3), (16, 8, 3, 3, 3), False),
        ((2, 8, 4, 3, 3, 3), (16, 4, 3, 3, 3), False),
        ((64, 128), (64, 128), False),
    ],
)
def test_weights_are_named(dims: tuple[int, ...], weights: tuple[int, ...], transposed: bool) -> None:
    shapes = {"src": (2, 99, 10, 10), "weights": weights, "dst": (2, 98, 8, 8)}
    assert name_operand(reorder(*dims), shapes, transposed=transposed).operand == "weights"


def test_activations_are_named_and_strangers_are_not() -> None:
    shapes = {"src": (2, 8, 10, 10), "weights": (16, 8, 3, 3), "dst": (2, 16, 8, 8)}
    assert name_operand(reorder(2, 8, 10, 10), shapes).operand == "src"
    assert name_operand(reorder(2, 16, 8, 8), shapes).operand == "dst"
    assert name_operand(reorder(8, 16, 3, 3), shapes).operand == ""
    assert name_operand(reorder(2, 8, 10, 10), {}).operand == ""


KINDS = {
    "plain": lambda: nn.Conv2d(16, 32, 3),
    "grouped": lambda: nn.Conv2d(16, 32, 3, groups=2),
    "transposed": lambda: nn.ConvTranspose2d(16, 32, 3),
    "transposed and grouped": lambda: nn.ConvTranspose2d(16, 32, 3, groups=2),
}


@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("kind", KINDS)
def test_the_reorders_of_a_contiguous_convolution(kind: str) -> None:
    """Which operands are reordered is oneDNN's choice on each processor; that the weights are is not."""
    trace = record(KINDS[kind](), torch.randn(4, 16, 12, 12), options=TRAIN)
    forward = only(trace, "convolution").reorders
    assert {each.operand for each in forward} <= {"src", "weights", "dst"}
    assert "weights" in {each.operand for each in forward}
    assert all(each.library == "oneDNN" and each.nbytes > 0 and each.ms is not None for each in forward)
    backward = only(trace, "convolution_backward").reorders
    assert {each.operand for each in backward} <= {"src", "weights", "dst"}


@pytest.mark.usefixtures("few_threads")
def test_a_channels_last_convolution_has_no_activation_reordered() -> None:
    model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 1)).to(memory_format=torch.channels_last)
    trace = record(model, torch.randn(4, 16, 12, 12).to(memory_format=torch.channels_last))
    found = [each.operand for call in calls(trace, "convolution") for each in call.reorders]
    assert found
    assert set(found) == {"weights"}
