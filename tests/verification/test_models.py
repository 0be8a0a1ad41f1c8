"""Whole models: what is told of sound ones, and of those that depend on their memory format."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from cases.models import as_strided_windows, raw_pointer_consumer, view_after_convolution
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import nhwc
from nhwc.errors import ModelError, RegistryError
from nhwc.model import Phase
from nhwc.proof import Outcome

pytestmark = pytest.mark.usefixtures("few_threads")


def small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 4, 1)
    )


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def outcome(model: nn.Module, *inputs: object, **options: object) -> Outcome:
    return nhwc.verify(model, *inputs, **options).variants[0].outcome


# -- what passes ------------------------------------------------------------------------------------------------------


def test_a_training_step_with_dropout_passes_and_names_every_result() -> None:
    report = nhwc.verify(small(), images(), train=True)
    assert report.passed
    names = {(each.group, each.name) for each in report.variants[0].results}
    assert {("output", "output"), ("gradient", "0.weight"), ("buffer", "1.running_mean")} <= names
    assert any("replayed" in note for note in report.notes)


def test_the_gradient_of_an_input_is_a_result() -> None:
    report = nhwc.verify(small(), images().requires_grad_(), train=True)
    assert ("gradient", "input 0") in {(each.group, each.name) for each in report.variants[0].results}
    assert report.passed


def test_autocast_is_set_against_autocast() -> None:
    (variant,) = nhwc.verify(small(), images(), train=True, variants=["channels_last+bf16"]).variants
    assert variant.outcome is Outcome.PASSED
    assert variant.results[0].contiguous_error > 1e-4


class Random(nn.Module):
    """Draws in every way that torch, Python and numpy have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.rand_like(x) + torch.randn(x.shape) * random.random() + float(np.random.rand())
        x = x * torch.bernoulli(torch.sigmoid(x)) + torch.normal(x, 0.1)
        x = nn.functional.rrelu(x, training=True) + torch.empty_like(x).uniform_()
        x = nn.functional.feature_alpha_dropout(x, 0.3, training=True)
        pick = torch.multinomial(torch.softmax(x.mean(dim=(0, 2, 3)), 0), 2)
        return x[:, pick] + torch.randperm(2).view(1, 2, 1, 1)


def test_every_kind_of_randomness_is_replayed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Random())
    assert nhwc.verify(model, images(), train=True).passed
    assert nhwc.verify(model, images()).passed


def test_inputs_in_containers_and_keywords() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 3)

        def forward(self, pair: dict[str, torch.Tensor], *, scale: torch.Tensor) -> dict[str, list[torch.Tensor]]:
            return {"found": [self.layer(pair["image"]) * scale]}

    report = nhwc.verify(Two(), {"image": images()}, kwargs={"scale": torch.tensor(2.0)}, train=True)
    assert report.passed
    assert report.variants[0].results[0].name == "output['found'][0]"


# -- what depends on the format ---------------------------------------------------------------------------------------


def test_as_strided_is_named() -> None:
    (variant,) = nhwc.verify(as_strided_windows.Windows(), torch.randn(2, 1, 5, 5)).variants
    assert variant.outcome is Outcome.DIVERGED
    assert variant.divergence.operator == "aten.as_strided.default"
    assert "as_strided" in variant.divergence.source.text
    assert "strides written into the call" in variant.divergence.reason


def test_a_reader_of_raw_memory_is_named() -> None:
    (variant,) = nhwc.verify(raw_pointer_consumer.Bound(), torch.randn(2, 3, 4, 4)).variants
    assert variant.outcome is Outcome.DIVERGED
    assert variant.divergence.operator.startswith("aten.set_")
    assert "raw memory" in variant.divergence.reason


class ReadsAddress(nn.Module):
    """Reads its input's memory past the dispatcher, as a runtime would that is given an address."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = np.ctypeslib.as_array((__import__("ctypes").c_float * x.numel()).from_address(x.data_ptr()))
        return torch.tensor(flat.reshape(x.shape).sum(axis=(2, 3)))


def test_a_module_is_named_where_no_operator_is_at_fault() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), ReadsAddress())
    (variant,) = nhwc.verify(model, images()).variants
    assert variant.outcome is Outcome.DIVERGED
    assert (variant.divergence.operator, variant.divergence.module) == ("ReadsAddress", "1")
    assert "past the dispatcher" in variant.divergence.reason


def test_a_view_that_raises_in_channels_last_alone() -> None:
    head, inputs = view_after_convolution.build()
    (variant,) = nhwc.verify(head, *inputs, train=True).variants
    assert variant.outcome is Outcome.RAISED
    assert variant.divergence.operator == "aten.view.default"
    assert ".view(" in variant.divergence.source.text
    assert "view size is not compatible" in variant.divergence.reason
    assert "view size" not in variant.reason  # the message is long, and told once


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_optimizer_with_stale_state_is_flagged_as_it_is(kind: type[torch.optim.Optimizer]) -> None:
    model, x = nn.Conv2d(3, 8, 3), torch.randn(2, 3, 6, 6)
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), 1e-2, fused=True, **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    model.to(memory_format=torch.channels_last)
    report = nhwc.verify(model, x.to(memory_format=torch.channels_last), train=True, optimizer=optimizer)
    as_is, channels_last = report.variants
    assert (as_is.name, as_is.outcome) == ("as_is", Outcome.DIVERGED)
    assert as_is.divergence.operator.startswith("aten._fused_")
    assert as_is.divergence.phase is Phase.OPTIMIZER
    assert channels_last.outcome is Outcome.PASSED


# -- what cannot be compared ------------------------------------------------------------------------------------------


class Counts(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Counts.calls += 1
        return x + Counts.calls


def test_a_model_that_is_not_deterministic_is_not_called_wrong() -> None:
    (variant,) = nhwc.verify(Counts(), images()).variants
    assert variant.outcome is Outcome.NOT_COMPARABLE
    assert "not deterministic" in variant.reason


def test_an_operator_that_draws_unsaid_is_not_called_wrong() -> None:
    from verification.planted import Around

    (variant,) = nhwc.verify(Around("noise"), images()).variants
    assert variant.outcome is Outcome.NOT_COMPARABLE
    assert "planted.noise.default" in variant.reason


class Whole(nn.Module):
    def __init__(self, value: float, share: float) -> None:
        super().__init__()
        self.value, self.share = value, share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > self.share, self.value, x)


def test_values_of_the_model_that_are_not_finite_are_its_own() -> None:
    report = nhwc.verify(Whole(float("nan"), 0.0), images())
    assert report.passed
    assert any("the model itself makes NaN or infinity in output" in note for note in report.notes)


def test_a_model_of_nothing_but_nan_is_not_comparable() -> None:
    (variant,) = nhwc.verify(Whole(float("nan"), -1e9), images()).variants
    assert variant.outcome is Outcome.NOT_COMPARABLE
    assert "no result of the model is finite" in variant.reason


def test_an_overflow_of_the_dtype_is_told_apart() -> None:
    class Overflow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x > 1, x * 3e38, x)

    report = nhwc.verify(Overflow(), images() * 2)
    assert report.passed
    assert any("the dtype overflows" in note for note in report.notes)


def test_compiled_randomness_is_not_comparable() -> None:
    (variant,) = nhwc.verify(small(), images(), train=True, variants=["channels_last+compile"]).variants
    assert variant.outcome is Outcome.NOT_COMPARABLE
    assert "draws its own random numbers" in variant.reason


class DrawsByLayout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (torch.rand(1) if x.is_contiguous() else torch.rand(2).sum())


def test_draws_that_do_not_match_are_not_comparable() -> None:
    (variant,) = nhwc.verify(DrawsByLayout(), images()).variants
    assert variant.outcome is Outcome.NOT_COMPARABLE
    assert "another shape" in variant.reason


# -- errors, and what is left behind ----------------------------------------------------------------------------------


class Raises(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer(x)
        raise self.error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("seven"), "the model raised ValueError: seven"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "ran out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), "ran out of memory"),
    ],
)
def test_a_model_that_raises_gives_one_sentence(error: Exception, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        nhwc.verify(Raises(error), images())


def test_an_interrupt_leaves_nothing_behind() -> None:
    model, x = Raises(KeyboardInterrupt()), images()
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy(), x.clone())
    with pytest.raises(KeyboardInterrupt):
        nhwc.verify(model, x, train=True)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert (before[2] == np.random.get_state()[1]).all()
    assert torch.equal(before[3], x)
    assert not _get_current_dispatch_mode_stack()
    assert not torch.nn.modules.module._global_forward_hooks


def test_model_optimizer_inputs_and_random_state_are_as_before() -> None:
    model, x = small().eval(), images().requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    strides = [parameter.stride() for parameter in model.parameters()]
    state = torch.get_rng_state()
    nhwc.verify(model, x, train=True, optimizer=optimizer)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert strides == [parameter.stride() for parameter in model.parameters()]
    assert torch.equal(state, torch.get_rng_state())
    assert not model.training
    assert x.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state


def test_what_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(RegistryError, match="there is no 'chanels_last'"):
        nhwc.verify(small(), images(), variants=["chanels_last"])
    with pytest.raises(RegistryError, match="no variant"):
        nhwc.verify(small(), images(), variants=[])
    with pytest.raises(RegistryError, match="factor=0"):
        nhwc.verify(small(), images(), factor=0)
    with pytest.raises(ModelError, match="pass train=True"):
        nhwc.verify(small(), images(), optimizer=torch.optim.SGD(small().parameters(), 0.1))
    with pytest.raises(ModelError, match=r"takes an nn\.Module"):
        nhwc.verify("resnet18", images())
    with pytest.raises(ModelError, match="no output of the model requires a gradient"):
        nhwc.verify(nn.ReLU(), images(), train=True)
    with pytest.raises(ModelError, match="returns no tensor"):
        nhwc.verify(type("Empty", (nn.Module,), {"forward": lambda self, x: None})(), images())


def test_operators_that_never_run_in_another_format_are_named() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.RReLU())
    notes = nhwc.verify(model, images(), train=True).notes
    assert any("not verified: aten.rrelu_with_noise" in note for note in notes), notes
    assert any("in 1 operator call," in note for note in notes), notes


def test_kernels_are_judged_like_any_other_variant() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.norm = nn.InstanceNorm2d(8, affine=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.norm(self.conv(x))
            seen.append((x.stride(1) == 1, y.stride(1) == 1))
            return y

    seen: list[tuple[bool, bool]] = []
    report = nhwc.verify(Net(), torch.randn(2, 3, 16, 16), train=True, variants=["channels_last+kernels"])
    assert report.passed, report
    assert report.variants[0].kernels == tuple(sorted(each.name for each in nhwc.kernels.kernels()))
    assert set(seen) == {(False, False), (True, True)}  # the kernel served, or the norm's output would be contiguous
    assert nhwc.kernels.active() == ()
