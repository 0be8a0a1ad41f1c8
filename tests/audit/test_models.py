"""What the audit says of models that everybody knows: who loses the format in each, and who does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from audit.zoo import sample
from torch import nn

from nhwc.api import audit
from nhwc.model import Finding, Report, Severity

pytestmark = [pytest.mark.usefixtures("few_threads"), pytest.mark.filterwarnings("ignore::UserWarning")]
slow = pytest.mark.slow

SHUFFLED = [f"stage{stage}.{block}" for stage, blocks in ((2, 4), (3, 8), (4, 4)) for block in range(blocks)]


def audited(name: str, *, train: bool = False) -> Report:
    step = sample(name, train=train)
    return audit(step.model, *step.inputs, train=train, convert=True, repeats=0)


def losses(report: Report) -> list[Finding]:
    """Findings of a copy or a loss that cost anything."""
    return [f for f in report.findings if f.kind in ("copy", "loss") and f.severity is not Severity.NOTE]


def told(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return sorted((finding.code, finding.operator, finding.module) for finding in findings)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "convnext_tiny", pytest.param("resnet50", marks=slow)])
def test_clean_model_has_no_losses(name: str) -> None:
    assert told(losses(audited(name))) == []


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("squeezenet1_1", "classifier.3"),
        pytest.param("densenet121", "", marks=slow),
        pytest.param("resnet50", "avgpool", marks=slow),
    ],
)
def test_only_global_pooling_is_told_of_a_clean_backward(name: str, pooling: str) -> None:
    """The slices that the backward of cat gives are channels last with gaps: no loss."""
    assert told(losses(audited(name, train=True))) == [("NH203", "div", pooling)]


@pytest.mark.parametrize(
    ("name", "pooling", "activation"),
    [
        ("mobilenet_v2", "", "hardtanh_backward"),
        pytest.param("efficientnet_b0", "avgpool", "silu_backward", marks=slow),
    ],
)
def test_gradient_of_global_pooling_reaches_the_last_activation(name: str, pooling: str, activation: str) -> None:
    report = audited(name, train=True)
    pooled = [f for f in report.culprits if f.code == "NH203" and f.module == pooling]
    assert len(pooled) == 1
    assert [(f.operator, f.phase.value) for f in report.consequences(pooled[0])] == [(activation, "backward")]
    assert {f.code for f in report.culprits} == {"NH203"}


def test_shufflenet_blames_the_channel_shuffle_of_each_block() -> None:
    report = audited("shufflenet_v2_x1_0")
    assert sorted(finding.module for finding in report.culprits) == sorted(SHUFFLED)
    for finding in report.culprits:
        assert (finding.code, finding.operator, finding.calls) == ("NH101", "contiguous", 1)
        assert finding.kernel == "channel_shuffle"
        assert "nhwc.kernels.use()" in finding.advice
        assert finding.source is not None
        assert Path(finding.source.file).name == "shufflenetv2.py"
        assert finding.source.function == "channel_shuffle"
        assert ".contiguous()" in finding.source.text
    convolutions = [finding for finding in losses(report) if finding.operator == "conv2d"]
    assert convolutions
    assert all(finding.cause is not None for finding in convolutions)


def test_vgg_blames_the_flatten_before_the_classifier() -> None:
    report = audited("vgg11")
    assert told(losses(report)) == [("NH101", "flatten", "")]
    (flatten,) = report.culprits
    assert flatten.bytes == 512 * 7 * 7 * 4
    assert flatten.source is not None
    assert "torch.flatten(x, 1)" in flatten.source.text
    assert "nhwc.convert(model, flatten=inputs)" in flatten.advice


def test_instance_norm_3d_hides_a_copy_in_each_norm() -> None:
    blocks = [layer for _ in range(2) for layer in (nn.Conv3d(8, 8, 3, padding=1), nn.InstanceNorm3d(8), nn.ReLU())]
    report = audit(nn.Sequential(*blocks), torch.randn(2, 8, 8, 8, 8), convert=True, repeats=0)
    assert told(report.culprits) == [("NH102", "instance_norm", "1"), ("NH102", "instance_norm", "4")]
    assert {finding.bytes for finding in report.culprits} == {2 * 8 * 8**3 * 4}
    first = next(finding for finding in report.culprits if finding.module == "1")
    assert told(report.consequences(first)) == [("NH102", "conv3d", "3")]


@slow
def test_faster_rcnn_blames_roi_align_and_the_batch_of_pictures() -> None:
    report = audited("fasterrcnn_resnet50_fpn")
    # bilinear interpolation of few channels copies or not, depending on threads
    assert told([finding for finding in report.culprits if finding.module != "transform"]) == [
        ("NH102", "conv2d", "backbone.body.conv1"),  # torchvision batches pictures into a contiguous tensor
        ("NH102", "roi_align", "roi_heads.box_roi_pool"),
    ]


@slow
def test_keypoint_rcnn_cannot_be_trained_in_channels_last() -> None:
    """Its loss takes a view of a convolution's output that only contiguous memory allows."""
    (first, *_) = audited("keypointrcnn_resnet50_fpn", train=True).findings
    assert (first.code, first.operator, first.module) == ("NH403", "view", "roi_heads")
    assert first.source is not None
    assert first.source.function == "keypointrcnn_loss"


@slow
def test_raft_blames_the_concatenation_of_both_formats() -> None:
    report = audited("raft_small")
    cats = [f for f in report.culprits if (f.code, f.operator) == ("NH202", "cat")]
    assert [f.module for f in cats] == ["update_block.motion_encoder"]
    assert cats[0].source is not None
    assert "torch.cat" in cats[0].source.text
    norms = {f.module for f in report.culprits if f.operator == "instance_norm"}
    assert norms
    assert all(module.startswith("feature_encoder.") for module in norms)
