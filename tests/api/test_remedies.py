"""Findings name the kernel that would help; with the kernels on the losses are gone."""

import re

import pytest
import torch
from torch import nn
from torchvision import ops

import nhwc
from nhwc.api.auditing import AuditReport
from nhwc.kernels import native
from nhwc.rules import advice

LOSSES = {"NH101", "NH102", "NH201", "NH202", "NH203"}


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.norm = nn.InstanceNorm2d(16, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x)))


class Shuffled(Normed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        n, c, h, w = x.shape
        return self.second(x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w))


class Gated(Normed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.second(self.first(x))).mean((2, 3))


class Pooled(Normed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        boxes = torch.tensor([[0.0, 1.0, 1.0, 20.0, 20.0], [1.0, 3.0, 3.0, 15.0, 30.0]])
        return self.second(ops.roi_pool(self.first(x), boxes, 4))


class Deformed(Normed):
    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(16, 18, 3, padding=1)
        self.deformed = ops.DeformConv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.second(self.deformed(x, self.offsets(x)))


def audit(model: nn.Module, **options: int) -> AuditReport:
    return nhwc.audit(model, torch.randn(2, 3, 32, 32), train=True, **options)


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        (Normed, "instance_norm"),
        (Shuffled, "channel_shuffle"),
        (Gated, "activation_backward"),
        (Pooled, "roi_pool"),
        (Deformed, "deform_conv2d"),
    ],
)
def test_the_kernel_is_named_and_with_it_the_loss_is_gone(model: type[Normed], kernel: str) -> None:
    without = audit(model(), repeats=2)
    named = [finding for finding in without.findings if finding.kernel == kernel]
    assert named
    assert any(finding.kernel_ms is not None for finding in named)
    assert f"kernel: {kernel}" in str(without) or kernel == "activation_backward"
    assert nhwc.load_report(without.render("json")) == without
    with nhwc.kernels.use():
        within = audit(model(), repeats=0)
    operators = {finding.operator for finding in named}
    assert [each for each in within.findings if each.code in LOSSES and each.operator in operators] == []
    assert all(finding.kernel is None for finding in within.findings)


def test_without_measurements_the_kernel_is_named_alone() -> None:
    (culprit,) = audit(Normed(), repeats=0).culprits
    assert (culprit.kernel, culprit.kernel_ms) == ("instance_norm", None)
    assert "nhwc.kernels.use()" in culprit.advice


class Converting(Normed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).contiguous())


def test_a_conversion_by_hand_is_told_the_kernel_that_makes_it_faster() -> None:
    findings = audit(Converting(), repeats=0).findings
    assert [finding.operator for finding in findings if finding.kernel == "conversion"] == ["contiguous"]


def test_advice_that_names_a_kernel_names_one_that_replaces_the_operator() -> None:
    named = {
        operator: name
        for operator, text in advice._BY_OPERATOR.items()
        for name in re.findall(r"nhwc\.kernels\.use\('(\w+)'\)", text)
    }
    assert {"roi_align", "deform_conv2d", "im2col"} <= set(named)
    for operator, name in named.items():
        kernel = next(each for each in nhwc.kernels.kernels() if each.name == name)
        assert any(replaced.partition("::")[2] == operator for replaced in kernel.operators), operator


class Resized(Normed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.interpolate(self.first(x), scale_factor=2.0, mode="bicubic"))


@pytest.mark.parametrize(
    ("model", "kernel"), [(Pooled, "roi_pool"), (Deformed, "deform_conv2d"), (Resized, "interpolate")]
)
def test_without_the_library_no_kernel_is_named_that_would_do_nothing(
    model: type[Normed], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(finding.kernel == kernel for finding in audit(model(), repeats=0).findings)
    monkeypatch.setattr(native, "is_available", lambda: False)
    findings = audit(model(), repeats=0).findings
    assert not any(finding.kernel == kernel for finding in findings)
    told = [finding.advice for finding in findings if f"the kernel {kernel} would" in finding.advice]
    assert told
    for text in told:
        assert "needs the compiled library, which is missing here: `nhwc doctor` says why" in text
        assert "nhwc.kernels.use(" not in text


def test_kernels_that_were_on_without_the_library_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with nhwc.kernels.use("instance_norm"):
        assert not any("library" in sentence for sentence in audit(Normed(), repeats=0).trace.limits)
        monkeypatch.setattr(native, "is_available", lambda: False)
        told = [sentence for sentence in audit(Normed(), repeats=0).trace.limits if "library" in sentence]
    assert len(told) == 1
    assert "`nhwc doctor` says what is lost" in told[0]
    assert not any("library" in sentence for sentence in audit(Normed(), repeats=0).trace.limits)


def test_without_the_library_a_kernel_that_is_a_composition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    (culprit,) = audit(Normed(), repeats=0).culprits
    assert culprit.kernel == "instance_norm"
