"""The verb optimize, on measurements that tests make up: what comes back, what is put on the model, and the report."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from api.test_deciding import measured
from optimization.made_up_plans import Branching, mixed, plan
from torch import nn

import nhwc
from nhwc.api import optimizing, plans_tried
from nhwc.api.benching import BenchReport
from nhwc.errors import PlanError
from nhwc.optimization import is_arranged, kernels_of
from nhwc.optimization_report import Form
from nhwc.plan import Plan
from nhwc.proof import Outcome, VariantProof, Verification
from nhwc.timing import Benchmark

IMAGE = torch.randn(2, 3, 8, 8)
Seen = dict[str, Any]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch, few_threads: None) -> Callable[..., Seen]:
    """Candidates take the milliseconds that they are told to; nothing is run."""

    def install(
        error: BaseException | None = None,
        outcome: Outcome = Outcome.PASSED,
        plan: Callable[[nn.Module], Plan] | None = None,
        **times_ms: float,
    ) -> Seen:
        seen: Seen = {}

        def plan_formats(model: nn.Module, *inputs: Any, **options: Any) -> Plan:
            if plan is None:
                raise nhwc.RecordingError("nothing can be planned here")
            seen["planning"] = options
            return plan(model)

        def bench(model: nn.Module, *inputs: Any, **options: Any) -> BenchReport:
            seen.update(options, model=model)
            if error is not None:
                raise error
            made = measured(**times_ms)
            return BenchReport(**{name: getattr(made, name) for name in Benchmark.__dataclass_fields__})

        def verify(model: nn.Module, *inputs: Any, variants: list[str], **options: Any) -> Verification:
            seen.setdefault("verified", []).extend(variants)
            proofs = tuple(VariantProof(each, each, outcome, "said so") for each in variants)
            return Verification("net", options["train"], 8.0, proofs, "cpu", "2.14", 1.0)

        monkeypatch.setattr(optimizing, "bench", bench)
        monkeypatch.setattr(optimizing, "verify", verify)
        monkeypatch.setattr(plans_tried, "plan_formats", plan_formats)
        return seen

    return install


def test_channels_last_with_kernels_is_put_on_the_model(taking: Callable[..., Seen]) -> None:
    seen = taking(contiguous=10, channels_last=8, channels_last__kernels=5, engine=20)
    model, expected = net(), None
    expected = model(IMAGE)
    found = nhwc.optimize(model, IMAGE)
    assert found is model
    assert seen["verified"] == ["channels_last+kernels"]
    assert kernels_of(model) == ()
    assert nhwc.layout_of(model[0].weight).kind == nhwc.LayoutKind.CHANNELS_LAST
    assert torch.allclose(model(IMAGE), expected, atol=1e-6)
    report = nhwc.optimization_of(model)
    assert (report.chosen, report.form, report.plain) == ("channels_last+kernels", Form.IN_PLACE, "channels_last")
    nhwc.restore(model)
    assert nhwc.layout_of(model[0].weight).kind == nhwc.LayoutKind.CONTIGUOUS
    with pytest.raises(nhwc.ModelError, match="was not optimized"):
        nhwc.optimization_of(model)
    with pytest.raises(nhwc.ConversionError, match="neither converted nor optimized"):
        nhwc.restore(model)


def test_candidates_are_copies_with_all_that_is_put_on(taking: Callable[..., Seen]) -> None:
    seen = taking(contiguous=10, channels_last=10, channels_last__kernels=10, engine=10)
    model = net()
    nhwc.optimize(model, IMAGE)
    variants = seen["variants"]
    assert list(variants) == ["contiguous", "channels_last", "channels_last+kernels", "engine"]
    assert kernels_of(variants["channels_last+kernels"]) == ()
    assert variants["engine"] == "engine"
    assert all(each is not model for each in variants.values())
    assert seen["model"] is model


def test_unchanged_it_says_why(taking: Callable[..., Seen]) -> None:
    taking(contiguous=10, channels_last=12, channels_last__kernels=11, engine=11)
    model = net()
    strides = model[0].weight.stride()
    assert nhwc.optimize(model, IMAGE) is model
    assert (model[0].weight.stride(), type(model)) == (strides, nn.Sequential)
    assert not model._forward_pre_hooks
    report = nhwc.optimization_of(model)
    assert report.form is Form.UNCHANGED
    assert str(report).startswith("Unchanged: no candidate is proved faster than contiguous")
    nhwc.restore(model)


def test_the_engine_stands_in_the_models_place(taking: Callable[..., Seen]) -> None:
    taking(contiguous=10, channels_last=8, channels_last__kernels=7, engine=3)
    model = net()
    found = nhwc.optimize(model, IMAGE)
    assert type(found).__name__ == "Engine"
    assert torch.allclose(found(IMAGE), model(IMAGE), atol=1e-5)
    assert nhwc.optimization_of(found).form is Form.ENGINE
    assert not model._forward_pre_hooks


def test_compiled_where_it_is_asked_for(taking: Callable[..., Seen]) -> None:
    seen = taking(contiguous=10, channels_last=8, channels_last__compile=3)
    model = net()
    found = nhwc.optimize(model, IMAGE, candidates=["channels_last+compile"])
    assert list(seen["variants"]) == ["contiguous", "channels_last", "channels_last+compile"]
    assert found._orig_mod is model
    assert nhwc.layout_of(model[0].weight).kind == nhwc.LayoutKind.CHANNELS_LAST
    assert nhwc.optimization_of(found).form is Form.COMPILED
    nhwc.restore(found)
    assert nhwc.layout_of(model[0].weight).kind == nhwc.LayoutKind.CONTIGUOUS


def test_training_measures_training_and_leaves_the_engine_out(taking: Callable[..., Seen]) -> None:
    seen = taking(contiguous=10, channels_last=8, channels_last__kernels=5)
    model = net().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(IMAGE).sum().backward()
    optimizer.step()
    nhwc.optimize(model, IMAGE, train=True, optimizer=optimizer)
    assert (seen["mode"], list(seen["variants"])[2:]) == ("training", ["channels_last+kernels"])
    assert optimizer.state[model[0].weight]["momentum_buffer"].stride() == model[0].weight.stride()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_interrupted_it_leaves_all_as_it_was(taking: Callable[..., Seen], error: BaseException) -> None:
    taking(error)
    model = net()
    before = dict(vars(model))
    with pytest.raises(type(error)):
        nhwc.optimize(model, IMAGE)
    assert dict(vars(model)) == before
    assert nhwc.kernels.active() == ()


def test_the_report_travels_with_the_model_and_comes_back_from_a_file(
    taking: Callable[..., Seen], tmp_path: Any
) -> None:
    taking(contiguous=10, channels_last=8, channels_last__kernels=5, engine=20)
    model = nhwc.optimize(net(), IMAGE)
    report = nhwc.optimization_of(model)
    assert nhwc.optimization_of(copy.deepcopy(model)) == report
    assert nhwc.optimization_of(pickle.loads(pickle.dumps(model))) == report
    assert nhwc.load_optimization(report.save(tmp_path / "found.json")) == report
    nhwc.restore(model)


@pytest.mark.parametrize(
    ("candidate", "error", "words"),
    [
        ("chanels_last", nhwc.RegistryError, "did you mean channels_last"),
        ("channels_last+bf16", nhwc.RegistryError, "cannot be put on a model"),
        ("engine", nhwc.VariantError, "call model.eval"),
    ],
)
def test_what_is_no_candidate(candidate: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        nhwc.optimize(net().train(), IMAGE, candidates=[candidate])


def test_a_model_in_training_mode_is_measured_without_the_engine(taking: Callable[..., Seen]) -> None:
    seen = taking(contiguous=10, channels_last=10, channels_last__kernels=10)
    model = nhwc.optimize(net().train(), IMAGE)
    assert "engine" not in seen["variants"]
    notes = nhwc.optimization_of(model).notes
    assert notes[0] == "planned was not tried: nothing can be planned here"
    assert notes[1].startswith("engine was not tried")


def test_a_plan_is_made_tried_and_put_on_the_model(taking: Callable[..., Seen]) -> None:
    seen = taking(plan=mixed, contiguous=10, channels_last=9, planned=6, channels_last__kernels=8, engine=20)
    model = Branching().eval()
    expected = model(IMAGE)
    found = nhwc.optimize(model, IMAGE, budget_s=3.0)
    assert found is model
    assert list(seen["variants"]) == ["contiguous", "channels_last", "planned", "channels_last+kernels", "engine"]
    assert is_arranged(seen["variants"]["planned"])
    assert seen["planning"]["budget_s"] == 3.0
    assert seen["verified"][0].startswith("planned:plan")
    assert torch.allclose(model(IMAGE), expected, atol=1e-5)
    assert nhwc.layout_of(model.left.weight).kind == nhwc.LayoutKind.CHANNELS_LAST
    report = nhwc.optimization_of(model)
    assert (report.chosen, report.candidate("planned").predicted) == ("planned", 1.25)
    assert report.plan == mixed(model)
    assert "predicted 1.25 times channels_last, measured 1.50" in " ".join(str(report).split())
    with pytest.raises(nhwc.ModelError, match=r"nhwc\.restore\(model\) first"):
        nhwc.optimize(model, IMAGE)
    nhwc.restore(model)
    assert not is_arranged(model)


def test_a_plan_of_one_format_is_not_tried(taking: Callable[..., Seen]) -> None:
    seen = taking(
        plan=lambda model: plan(model, {"0": "channels_last"}, []),
        contiguous=10,
        channels_last=10,
        channels_last__kernels=10,
        engine=10,
    )
    model = nhwc.optimize(net(), IMAGE)
    assert "planned" not in seen["variants"]
    assert "planned was not tried: the plan has all modules in channels last" in nhwc.optimization_of(model).notes


def test_a_plan_that_does_not_hold_is_refused(taking: Callable[..., Seen]) -> None:
    model = Branching().eval()
    with pytest.raises(PlanError, match="does not hold here: it was made for another module tree"):
        nhwc.optimize(net(), IMAGE, plan=mixed(model))
    assert not is_arranged(model)


def test_a_plan_is_verified_as_it_is_put_on(few_threads: None) -> None:
    from nhwc.variants.planned import offered

    model = Branching()
    with offered([mixed(model)]) as spec:
        report = nhwc.verify(model, IMAGE, variants=[spec], train=True)
        assert report.passed, str(report)
    with pytest.raises(nhwc.RegistryError, match="no plan is offered as"):
        nhwc.verify(model, IMAGE, variants=[spec])
    with pytest.raises(nhwc.RegistryError, match="no plan is offered as"):
        nhwc.verify(model, IMAGE, variants=["planned"])
    assert not is_arranged(model)


def test_what_is_no_model() -> None:
    with pytest.raises(nhwc.ModelError, match="takes an nn"):
        nhwc.optimize("resnet18", IMAGE)  # type: ignore[arg-type]
    with pytest.raises(nhwc.ModelError, match="a loss is for training"):
        nhwc.optimize(net(), IMAGE, loss=torch.sum)


def test_really_measured(few_threads: None) -> None:
    model = net()
    expected = model(IMAGE)
    found = nhwc.optimize(model, IMAGE, candidates=["channels_last+kernels"], budget_s=0.3)
    assert torch.allclose(found(IMAGE), expected, atol=1e-5)
    report = nhwc.optimization_of(found)
    assert [each.name for each in report.candidates] == ["contiguous", "channels_last", "channels_last+kernels"]
    assert all(each.median_ms for each in report.candidates)
