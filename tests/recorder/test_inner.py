"""Copies inside kernels: which, from what strides to what, of which operand."""

from __future__ import annotations

import pytest
import torch
from recorder.test_calls import calls, only
from torch import nn

from nhwc.recorder import record

pytestmark = pytest.mark.usefixtures("few_threads")


def test_a_pooling_kernel_copies_its_operand() -> None:
    volume = torch.randn(2, 4, 6, 6, 6).to(memory_format=torch.channels_last_3d)
    call = only(record(nn.AvgPool3d(2), volume), "avg_pool3d")
    (copy,) = call.copies
    assert copy.operator == "aten::contiguous"
    assert (copy.source.shape, copy.source.strides) == ((2, 4, 6, 6, 6), (864, 1, 144, 24, 4))
    assert copy.target.strides == (864, 216, 36, 6, 1)
    assert copy.source.name == "input 0"
    assert copy.source.storage == call.inputs[0].storage
    assert copy.target.storage == -1  # the kernel's own
    assert copy.target.nbytes == 2 * 4 * 216 * 4
    assert copy.ms is not None
    assert call.ms is not None
    assert copy.ms <= call.ms


def test_a_contiguous_operand_is_not_copied() -> None:
    assert only(record(nn.AvgPool3d(2), torch.randn(2, 4, 6, 6, 6)), "avg_pool3d").copies == ()


def test_a_composite_operator_is_the_caller_of_the_copy_that_it_makes() -> None:
    image = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    trace = record(nn.InstanceNorm2d(4), image)
    assert {call.caller for call in trace.calls} == {"aten::instance_norm"}
    (clone,) = [call for call in trace.calls if call.name in ("clone", "contiguous", "copy_")]
    assert clone.inputs[0].strides == (144, 1, 24, 4)
    assert clone.outputs[0].strides == (144, 36, 6, 1)
    assert only(trace, "native_batch_norm").copies == ()


def test_the_operand_among_several_is_told_apart() -> None:
    torchvision = pytest.importorskip("torchvision")
    image = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    boxes = torch.tensor([[0.0, 0, 0, 4, 4]])
    trace = record(lambda features, boxes: torchvision.ops.roi_align(features, boxes, 2), image, boxes)
    call = only(trace, "roi_align")
    assert [copy.source.name for copy in call.copies] == ["input 0"]
    assert call.copies[0].target.strides == (256, 64, 8, 1)


def test_a_contiguous_weight_is_copied_at_every_call() -> None:
    conv = nn.Conv2d(8, 8, 3)
    trace = record(conv, torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last))
    assert [copy.source.name for copy in only(trace, "convolution").copies] == ["weight"]


def test_copies_of_the_backward_pass() -> None:
    volume = torch.randn(2, 4, 6, 6, 6).to(memory_format=torch.channels_last_3d).requires_grad_()
    trace = record(lambda x: nn.functional.avg_pool3d(x, 2).sum().backward(), volume)
    call = only(trace, "avg_pool3d_backward")
    assert {copy.source.shape for copy in call.copies} <= {meta.shape for meta in call.inputs}
    assert any(
        copy.source.strides == (864, 1, 144, 24, 4) or copy.source.shape == (2, 4, 3, 3, 3) for copy in call.copies
    )


def test_the_callers_of_plain_operators_are_themselves() -> None:
    trace = record(lambda x: (x + 1).relu(), torch.ones(2))
    assert [call.caller for call in trace.calls] == ["aten::add", "aten::relu"]
    assert all(not call.copies for call in trace.calls)


def test_a_copy_that_the_user_asks_for_is_a_call_of_its_own() -> None:
    trace = record(lambda x: x.contiguous(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
    (clone,) = calls(trace, "clone")
    assert clone.caller == "aten::contiguous"
