"""With the kernels on, no operator that has one copies or loses the format in the models that need them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from audit.zoo import sample
from torch import nn
from torchvision import models

import nhwc
from nhwc.api.auditing import AuditReport
from nhwc.model import Finding, Severity

pytestmark = [pytest.mark.usefixtures("few_threads"), pytest.mark.filterwarnings("ignore::UserWarning")]

#: Model → what it asks for in so many words: raft_small calls contiguous() on what it samples.
ASKED_FOR = dict.fromkeys(("raft_small", "raft_small, one pair"), ("NH101", "contiguous"))


def unet3d() -> tuple[nn.Module, tuple[Any, ...]]:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from unet3d import ResidualUNet3d
    finally:
        sys.path.pop(0)
    return ResidualUNet3d(8, 3), (torch.randn(1, 1, 16, 16, 32),)


def zoo(name: str, *, train: bool = True) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    def made() -> tuple[nn.Module, tuple[Any, ...]]:
        found = sample(name, train=train)
        return found.model, found.inputs

    return made


def one_pair() -> tuple[nn.Module, tuple[Any, ...]]:
    """A view of one sample may have any stride for the batch."""
    return models.optical_flow.raft_small(), (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))


def small_clip() -> tuple[nn.Module, tuple[Any, ...]]:
    """One small volume, for which torch picks the backends that answer in contiguous."""
    return models.video.r3d_18(), (torch.randn(1, 3, 8, 48, 48),)


MODELS = {
    "r3d_18": (small_clip, True),
    "deeplabv3_resnet50": (zoo("deeplabv3_resnet50"), True),
    "fasterrcnn_resnet50_fpn": (zoo("fasterrcnn_resnet50_fpn", train=False), False),
    "raft_small": (zoo("raft_small"), True),
    "shufflenet_v2_x1_0": (zoo("shufflenet_v2_x1_0"), True),
    "residual U-Net 3-D": (unet3d, True),
    "raft_small, one pair": (one_pair, True),
    "shufflenet_v2_x1_0, one image": (zoo("shufflenet_v2_x1_0", train=False), False),
}


def named(report: AuditReport, asked_for: tuple[str, str] | None = None) -> list[str]:
    """The findings that cost anything and name an operator with a kernel."""
    return [
        f"{finding.code} {finding.operator} ({finding.phase.value}, {finding.source}): {finding.message}"
        for finding in report.findings
        if finding.severity is not Severity.NOTE
        and (finding.code, finding.operator) != asked_for
        and _has_kernel(finding, report)
    ]


def _has_kernel(finding: Finding, report: AuditReport) -> bool:
    calls = [report.trace.calls[index] for index in finding.call_indices]
    kernels = [nhwc.kernels.replacing(name) for call in calls for name in (call.operator, call.caller)]
    return any(kernel is not None and kernel.mends for kernel in kernels)


@pytest.mark.parametrize("name", MODELS)
def test_no_finding_names_an_operator_that_has_a_kernel(name: str) -> None:
    torch.manual_seed(0)
    make, train = MODELS[name]
    model, inputs = make()
    with nhwc.kernels.use():
        report = nhwc.audit(model, *inputs, train=train, convert=True, repeats=0)
    assert report.trace.kernels == tuple(sorted(each.name for each in nhwc.kernels.kernels()))
    assert named(report, ASKED_FOR.get(name)) == []
    assert all(finding.kernel is None for finding in report.findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_without_the_kernels_such_findings_are_there(name: str) -> None:
    """What the test above looks for can be found."""
    torch.manual_seed(0)
    make, train = MODELS[name]
    model, inputs = make()
    report = nhwc.audit(model, *inputs, train=train, convert=True, repeats=0)
    assert named(report, ASKED_FOR.get(name)) != []
