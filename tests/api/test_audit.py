"""The audit as a whole: what is converted and restored, what is measured, what is an error."""

import json
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import nhwc
from nhwc.api import AuditReport, fake_mode
from nhwc.model import Severity


class Shuffle(nn.Module):
    """A convolution, a channel shuffle by hand, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        return self.second(y)


@pytest.fixture
def images() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, 16, 16)


def test_auto_converts_for_the_run_and_puts_the_very_memory_back(images: torch.Tensor) -> None:
    model = Shuffle()
    before = {name: (tensor.data_ptr(), tensor.stride()) for name, tensor in model.state_dict().items()}
    report = nhwc.audit(model, images, repeats=0)
    assert "converted to channels last for this audit" in report.trace.conversion
    assert report.trace.inputs[0].strides == (768, 1, 48, 3)
    assert {name: (tensor.data_ptr(), tensor.stride()) for name, tensor in model.state_dict().items()} == before
    assert images.is_contiguous()


def test_auto_leaves_a_model_in_channels_last_and_its_inputs_alone(images: torch.Tensor) -> None:
    report = nhwc.audit(nhwc.convert(Shuffle()), images, repeats=0)
    assert "as it is" in report.trace.conversion
    assert report.trace.inputs[0].strides == (768, 256, 16, 1)


def test_convert_false_audits_a_contiguous_model_as_such(images: torch.Tensor) -> None:
    report = nhwc.audit(Shuffle(), images, convert=False, repeats=0)
    assert [(finding.code, finding.calls) for finding in report.culprits] == [("NH204", 2)]


def test_an_unknown_convert_is_refused_with_the_words_there_are(images: torch.Tensor) -> None:
    with pytest.raises(nhwc.ConversionError, match="True, False or 'auto'"):
        nhwc.audit(Shuffle(), images, convert="always")


def test_times_are_medians_with_a_spread_and_a_share_of_the_step(images: torch.Tensor) -> None:
    report = nhwc.audit(Shuffle(), images, repeats=3)
    step = report.trace.step
    assert step is not None
    assert step.repeats == 3
    assert step.median_ms > 0
    measured = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    assert {finding.code for finding in measured} == {"NH101", "NH102"}
    for finding in measured:
        assert finding.ms is not None
        assert finding.ms_spread is not None
        assert finding.share == pytest.approx(finding.ms / step.median_ms)


def test_nothing_is_measured_without_repeats(images: torch.Tensor) -> None:
    report = nhwc.audit(Shuffle(), images, repeats=0)
    assert report.trace.step is None
    assert all(finding.ms is None for finding in report.findings if finding.severity is not Severity.NOTE)
    assert report.lost_ms is None


def test_a_spent_budget_is_said(images: torch.Tensor) -> None:
    report = nhwc.audit(Shuffle(), images, repeats=1, budget_s=-1.0)
    assert any("could not be timed" in limit for limit in report.trace.limits)


def test_a_measured_suspicion_is_dropped_where_nothing_is_lost() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16))
    suspected = nhwc.audit(model, torch.randn(1, 3, 4, 4), repeats=0)
    assert [finding.severity for finding in suspected.findings if finding.code == "NH205"] == [Severity.NOTE]
    measured = nhwc.audit(model, torch.randn(1, 3, 4, 4), repeats=5)
    for finding in measured.findings:
        if finding.code == "NH205":
            assert finding.ms is not None
            assert finding.ms > (finding.ms_spread or 0.0)


def test_a_model_that_raises_in_both_formats_is_the_users_error(images: torch.Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(5, 5))
    with pytest.raises(nhwc.ModelError, match="shapes cannot be multiplied") as caught:
        nhwc.audit(model, images)
    assert caught.value.__cause__ is not None
    assert model[0].weight.is_contiguous()


def test_compile_needs_a_model_that_runs(images: torch.Tensor) -> None:
    with pytest.raises(nhwc.RecordingError, match=r"nn\.Module"):
        nhwc.audit(lambda: None, compile=True)
    with pytest.raises(nhwc.RecordingError, match="static"):
        nhwc.audit(Shuffle(), images, compile=True, static=True)


def test_a_callable_that_raises_is_the_users_error() -> None:
    def step() -> None:
        torch.zeros(2, 3) @ torch.zeros(2, 3)

    with pytest.raises(nhwc.ModelError, match="shapes cannot be multiplied") as caught:
        nhwc.audit(step)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_model_that_raises_in_channels_last_only_is_a_finding() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.stem(x)
            return y.view(y.shape[0], -1)

    report = nhwc.audit(Head(), torch.randn(2, 3, 8, 8))
    assert [(finding.code, finding.operator, finding.severity) for finding in report.culprits] == [
        ("NH403", "view", Severity.ERROR)
    ]
    source = report.culprits[0].source
    assert source is not None
    assert source.text == "return y.view(y.shape[0], -1)"


def test_a_whole_training_step_with_a_stale_fused_optimizer_is_an_error() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(2, 3, 6, 6)
    model(batch).square().sum().backward()
    optimizer.step()
    model.to(memory_format=torch.channels_last)
    batch = batch.to(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.step()

    weight, state = model.weight.detach().clone(), optimizer.state[model.weight]["exp_avg"].clone()
    report = nhwc.audit(step, repeats=0)
    assert [(finding.code, finding.module) for finding in report.culprits] == [("NH401", "")]
    assert torch.equal(model.weight, weight)
    assert torch.equal(optimizer.state[model.weight]["exp_avg"], state)
    nhwc.convert(model, optimizer=optimizer)
    assert not nhwc.audit(step, repeats=0).culprits


def test_a_static_audit_agrees_with_the_eager_one_on_who_loses_the_format(images: torch.Tensor) -> None:
    eager = nhwc.audit(Shuffle(), images, repeats=0, train=True)
    static = nhwc.audit(Shuffle(), images, train=True, static=True)
    assert [f.operator for f in static.culprits] == [f.operator for f in eager.culprits] == ["contiguous"]
    assert static.trace.mode == "static"
    assert static.trace.step is None
    with fake_mode():
        model, fake = Shuffle(), torch.empty(512, 3, 64, 64)
    assert [f.operator for f in nhwc.audit(model, fake, static=True).culprits] == ["contiguous"]


def test_progress_names_its_stages(images: torch.Tensor) -> None:
    stages: list[str] = []
    nhwc.audit(Shuffle(), images, repeats=1, progress=lambda stage, _done, _total: stages.append(stage))
    assert set(stages) == {"record", "measure", "kernels"}


def test_keyword_arguments_and_a_loss_reach_the_model(images: torch.Tensor) -> None:
    class Scaled(nn.Conv2d):
        def forward(self, input: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:  # noqa: A002 nn.Conv2d's word
            return super().forward(input) * scale

    model = Scaled(3, 4, 3)
    scale = torch.randn(2, 4, 14, 14)
    report = nhwc.audit(model, images, kwargs={"scale": scale}, train=True, loss=lambda y: y.square().mean(), repeats=0)
    assert "pow" in {call.name for call in report.trace.calls}
    assert model.weight.grad is None


def test_a_report_shows_itself_and_saves_in_the_format_of_its_suffix(images: torch.Tensor, tmp_path: Path) -> None:
    report = nhwc.audit(Shuffle(), images, repeats=0)
    assert isinstance(report, AuditReport)
    assert str(report).startswith("Not in channels last end to end")
    assert "<table" in report._repr_html_() or "<div" in report._repr_html_()
    page = report.save(tmp_path / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    data = json.loads(report.save(tmp_path / "report.json").read_text())
    assert data["format"] == "nhwc-report"
    assert report.save(tmp_path / "report.txt").read_text() == str(report)


def test_the_report_does_not_keep_the_model_alive(images: torch.Tensor) -> None:
    model = Shuffle()
    report = nhwc.audit(model, images, repeats=1, train=True)
    alive = weakref.ref(model)
    del model
    assert alive() is None
    assert report.findings


def test_a_saved_report_loads_equal_and_shows_itself(images: torch.Tensor, tmp_path: Path) -> None:
    report = nhwc.audit(Shuffle(), images, repeats=1)
    loaded = nhwc.load_report(report.save(tmp_path / "report.json"))
    assert loaded == report
    assert str(loaded) == str(report)
    assert repr(report).startswith("<AuditReport of Shuffle: Not in channels last end to end")


def test_a_suffix_without_a_format_is_refused(images: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(nhwc.RegistryError, match=r"\.html, \.json, \.txt"):
        nhwc.audit(Shuffle(), images, repeats=0).save(tmp_path / "report.pdf")


def test_what_cannot_be_audited_is_said() -> None:
    with pytest.raises(nhwc.RecordingError, match="got str"):
        nhwc.audit("resnet18")  # type: ignore[arg-type]
    with pytest.raises(nhwc.RecordingError, match="below 0"):
        nhwc.audit(nn.Identity(), torch.zeros(1), repeats=-1)


def test_a_model_that_writes_more_than_buffers_is_left_as_it_was() -> None:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.code = nn.Embedding(4, 4)
            self.steps = torch.zeros(1)
            self.generator = torch.Generator()
            self.register_buffer("queue", torch.zeros(2))

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            self.code.weight.data.mul_(0.9)
            self.steps.add_(1)
            scale.add_(1)
            self.queue.resize_(100).fill_(1)
            torch.rand(2, generator=self.generator)
            return self.conv(x)

    model, images, scale = Codebook(), torch.randn(2, 3, 8, 8), torch.zeros(1)
    code, state = model.code.weight.detach().clone(), model.generator.get_state()
    report = nhwc.audit(model, images, scale, repeats=3)
    assert torch.equal(model.code.weight, code)
    assert model.steps.item() == 0
    assert scale.item() == 0
    assert torch.equal(model.queue, torch.zeros(2))
    assert torch.equal(model.generator.get_state(), state)
    assert report.trace.step is not None
    assert report.trace.step.repeats == 1


def test_inputs_written_by_a_model_that_raises_in_channels_last_come_back() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3)

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            scale.add_(1)
            return self.conv(x).view(2, -1)

    scale = torch.zeros(1)
    assert [finding.code for finding in nhwc.audit(Writes(), torch.randn(2, 3, 8, 8), scale).culprits] == ["NH403"]
    assert scale.item() == 0


def test_inputs_in_a_dataclass_are_converted_and_those_of_bytes_are_named() -> None:
    @dataclass
    class Batch:
        images: torch.Tensor
        mask: torch.Tensor

    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, batch: Batch) -> torch.Tensor:
            return self.conv(batch.images) + batch.mask.float().mean()

    mask = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    report = nhwc.audit(Takes(), Batch(torch.randn(2, 3, 8, 8), mask), repeats=0)
    assert not report.culprits
    assert report.trace.conversion.endswith("inputs that are not floating point stayed contiguous (uint8)")


@pytest.mark.parametrize("way", ["accumulator", "stack"])
def test_what_is_gathered_into_contiguous_memory_is_the_culprit(way: str) -> None:
    class Gathers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3)
            self.second = nn.Conv2d(8, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            gathered = torch.zeros(y.shape).add_(y) if way == "accumulator" else torch.stack([2 * image for image in y])
            return self.second(gathered)

    report = nhwc.audit(Gathers(), torch.randn(2, 3, 16, 16), repeats=0)
    assert [finding.operator for finding in report.culprits] == ["add_" if way == "accumulator" else "stack"]
    assert [finding.operator for finding in report.consequences(report.culprits[0])] == ["conv2d"]


def test_the_trace_names_the_kernels_that_were_on(images: torch.Tensor) -> None:
    assert nhwc.record(Shuffle(), images).kernels == ()
    with nhwc.kernels.use("pad", "cat"):
        report = nhwc.audit(Shuffle(), images, train=True, repeats=0)
        assert nhwc.record(Shuffle(), images).kernels == ("cat", "pad")
    assert report.trace.kernels == ("cat", "pad")
    assert nhwc.load_report(report.render("json")) == report


def test_kernels_switched_on_inside_a_step_count_where_they_are_on_in_backward_too(images: torch.Tensor) -> None:
    model = Shuffle()

    def whole() -> None:
        with nhwc.kernels.use("cat"):
            model(images).sum().backward()

    def forward_alone() -> None:
        with nhwc.kernels.use("cat"):
            loss = model(images).sum()
        loss.backward()

    assert nhwc.record(whole).kernels == ("cat",)
    assert nhwc.record(forward_alone).kernels == ()
