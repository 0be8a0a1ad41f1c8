"""The verb optimize, on measurements that tests make up: what comes back, what is put on the model, and the report."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from api.test_deciding import measured
from optimization.made_up_plans import Branching, mixed, plan
from torch import nn

import nhwc
from nhwc.api import optimizing, plan_formats, plans_tried, proving, remembering
from nhwc.api.benching import BenchReport
from nhwc.errors import PlanError
from nhwc.machine import environment
from nhwc.optimization import is_arranged, kernels_of
from nhwc.optimization.boundaries import Enter
from nhwc.optimization_report import Form
from nhwc.plan import Plan
from nhwc.proof import Outcome, VariantProof, Verification
from nhwc.strides import CONTIGUOUS
from nhwc.timing import Benchmark

IMAGE = torch.randn(2, 3, 8, 8)
#: Pictures of this width do not pass verification.
WRONG = 13
Seen = dict[str, Any]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch, few_threads: None) -> Callable[..., Seen]:
    """Candidates take the milliseconds that they are told to; nothing is run."""

    def install(
        error: BaseException | None = None,
        outcome: Outcome = Outcome.PASSED,
        plan: Callable[..., Plan] | None = None,
        elsewhere: dict[str, float] | None = None,
        **times_ms: float,
    ) -> Seen:
        seen: Seen = {"autocast": []}

        def plan_formats(model: nn.Module, *inputs: Any, **options: Any) -> Plan:
            if plan is None:
                raise nhwc.RecordingError("nothing can be planned here")
            seen["planning"] = options
            return plan(model) if inputs[0].shape == IMAGE.shape else plan(model, shape=tuple(inputs[0].shape))

        def bench(model: nn.Module, *inputs: Any, **options: Any) -> BenchReport:
            seen.update(options, model=model)
            seen["autocast"].append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
            if error is not None:
                raise error
            is_other = elsewhere is not None and inputs[0].shape != IMAGE.shape
            made = measured(**{**times_ms, **(elsewhere or {})} if is_other else times_ms)
            return BenchReport(**{name: getattr(made, name) for name in Benchmark.__dataclass_fields__})

        def verify(model: nn.Module, *inputs: Any, variants: list[str], **options: Any) -> Verification:
            seen.setdefault("verified", []).extend(variants)
            seen.setdefault("verified with", []).append(tuple(inputs[0].shape))
            found = Outcome.DIVERGED if inputs[0].shape[-1] == WRONG else outcome
            proofs = tuple(VariantProof(each, each, found, "said so") for each in variants)
            return Verification("net", options["train"], 8.0, proofs, "cpu", "2.14", 1.0)

        monkeypatch.setattr(proving, "bench", bench)
        monkeypatch.setattr(proving, "verify", verify)
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


SMALL, ODD = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 6, WRONG)


def test_every_shape_has_its_plan_and_its_proof(taking: Callable[..., Seen]) -> None:
    times = {"contiguous": 10.0, "channels_last": 9.0, "planned": 6.0}
    seen = taking(plan=mixed, elsewhere={"planned": 4.5}, **times)
    model = Branching().eval()
    nhwc.optimize(model, IMAGE, shapes=[(SMALL,), (IMAGE,)], batches=[2, 4], candidates=["planned"])
    report = nhwc.optimization_of(model)
    assert [other.shapes for other in report.others] == [((2, 3, 6, 6),), ((4, 3, 8, 8),)]
    assert [other.plan.inputs[0].shape for other in report.others if other.plan] == [(2, 3, 6, 6), (4, 3, 8, 8)]
    assert [each.ratio.estimate for each in report.others[0].candidates if each.ratio] == pytest.approx([0.9, 2.0])
    assert report.chosen == "planned"
    assert seen["verified with"] == [(2, 3, 8, 8), (2, 3, 6, 6), (4, 3, 8, 8)]
    (enter,) = (hook for hook in model._forward_pre_hooks.values() if isinstance(hook, Enter))
    assert enter.route.plans == {((2, 3, 8, 8),): 0, ((2, 3, 6, 6),): 1, ((4, 3, 8, 8),): 2}
    told = " ".join(str(report).split())
    assert "4x3x8x8: planned is 2.00 times as fast as channels_last" in told
    assert "predicted 1.25" in told
    assert nhwc.load_optimization(json.loads(report.render("json"))) == report


@pytest.mark.parametrize(
    ("elsewhere", "shapes", "words"),
    [
        ({"channels_last__kernels": 20.0}, SMALL, "faster, but with inputs of 2x3x6x6 it is slower than contiguous"),
        ({}, ODD, f"faster, but its results are not proved right: {Outcome.DIVERGED.value}, said so"),
    ],
    ids=["slower", "wrong"],
)
def test_what_another_shape_suffers_from_is_not_chosen(
    taking: Callable[..., Seen], elsewhere: dict[str, float], shapes: torch.Tensor, words: str
) -> None:
    taking(elsewhere=elsewhere, contiguous=10, channels_last=10, channels_last__kernels=5)
    model = nhwc.optimize(net(), IMAGE, shapes=[(shapes,)], candidates=["channels_last+kernels"])
    report = nhwc.optimization_of(model)
    assert (report.chosen, report.candidate("channels_last+kernels").reason) == ("", words)


def test_a_plain_format_that_another_shape_suffers_from_is_not_chosen(taking: Callable[..., Seen]) -> None:
    taking(elsewhere={"channels_last": 20.0}, contiguous=10, channels_last=5)
    model = nhwc.optimize(net(), IMAGE, shapes=[(SMALL,)], candidates=[])
    report = nhwc.optimization_of(model)
    assert report.form is Form.UNCHANGED
    assert report.reason == "channels last is faster, but with inputs of 2x3x6x6 it is slower than contiguous"


def test_the_engine_is_built_for_all_shapes(taking: Callable[..., Seen]) -> None:
    taking(contiguous=10, channels_last=8, engine=3)
    found = nhwc.optimize(net(), IMAGE, shapes=[(SMALL,)], candidates=["engine"])
    with warnings.catch_warnings():  # it warns of shapes that it was not built for
        warnings.simplefilter("error")
        assert found(SMALL).shape == (2, 8, 4, 4)


def test_plans_of_one_format_each_are_tried_where_they_differ(taking: Callable[..., Seen]) -> None:
    def plan_of(model: nn.Module, shape: tuple[int, ...] = (2, 3, 8, 8)) -> Plan:
        memory_format = "contiguous" if shape[-1] == 8 else "channels_last"
        return plan(model, {"0": memory_format}, [], shape=shape)

    times = dict.fromkeys(("contiguous", "channels_last", "planned", "channels_last__kernels", "engine"), 10.0)
    seen = taking(plan=plan_of, **times)
    nhwc.optimize(net(), IMAGE, shapes=[(SMALL,)])
    assert "planned" in seen["variants"]


@pytest.mark.parametrize("is_around", [False, True])
def test_autocast_is_around_all_of_it(taking: Callable[..., Seen], is_around: bool) -> None:
    seen = taking(contiguous=10, channels_last=8, channels_last__kernels=5)
    model = net()
    if is_around:
        with torch.autocast("cpu", torch.bfloat16):
            nhwc.optimize(model, IMAGE)
            assert torch.is_autocast_cache_enabled()
    else:
        nhwc.optimize(model, IMAGE, amp=torch.bfloat16)
    assert seen["autocast"] == [torch.bfloat16]
    assert not torch.is_autocast_enabled("cpu")
    report = nhwc.optimization_of(model)
    assert report.amp == "bfloat16"
    assert "under autocast bfloat16" in " ".join(str(report).split())
    assert any(note.startswith("engine was not tried: the engine runs without autocast") for note in report.notes)


def test_a_plan_of_another_autocast_is_refused() -> None:
    model = Branching().eval()
    made = replace(plan_formats(model, IMAGE, budget_s=0), amp="bfloat16")
    with pytest.raises(PlanError, match="it was made with autocast bfloat16, and this is with off"):
        nhwc.optimize(model, IMAGE, plan=made)
    with pytest.raises(PlanError, match="it was made with autocast bfloat16, and this is with float16"):
        nhwc.optimize(model, IMAGE, plan=made, amp=torch.float16)


def test_what_is_no_shape_and_no_autocast() -> None:
    with pytest.raises(nhwc.ModelError, match="a tuple of arguments for each shape, got a Tensor"):
        nhwc.optimize(net(), IMAGE, shapes=[IMAGE])
    with pytest.raises(nhwc.ModelError, match="shapes takes a list of tuples of arguments, got a int"):
        nhwc.optimize(net(), IMAGE, shapes=8)  # type: ignore[arg-type]
    with pytest.raises(nhwc.ModelError, match=r"got \(2, 3, 8, 8\) without a tensor"):
        nhwc.optimize(net(), IMAGE, shapes=[(2, 3, 8, 8)])
    with pytest.raises(nhwc.ModelError, match=r"batches takes a list of sizes, got 4: \[4\]"):
        nhwc.optimize(net(), IMAGE, batches=4)  # type: ignore[arg-type]
    with pytest.raises(nhwc.ModelError, match="batches=0: give sizes from 1"):
        nhwc.optimize(net(), IMAGE, batches=[0])
    with pytest.raises(nhwc.ModelError, match=r"amp=torch.float64 is no dtype of autocast"):
        nhwc.optimize(net(), IMAGE, amp=torch.float64)


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


def test_every_plan_that_is_given_has_to_be_of_this_model(taking: Callable[..., Seen]) -> None:
    taking(contiguous=10, channels_last=10, planned=5)
    model, other = Branching().eval(), net()
    here = {"environment": environment(torch.device("cpu"))}
    first, wide = (replace(mixed(model, shape=shape), **here) for shape in ((2, 3, 8, 8), (2, 3, 8, 16)))
    stray = replace(plan(other, {"0": "channels_last"}, [], shape=(9, 3, 8, 8)), **here)
    with pytest.raises(PlanError, match="another module tree"):
        nhwc.optimize(model, IMAGE, plan=[first, stray], candidates=["planned"])
    with pytest.raises(PlanError, match="2 plans are for inputs of the shapes"):
        nhwc.optimize(model, IMAGE, plan=[first, wide, wide], candidates=["planned"])
    with pytest.raises(PlanError, match="got a str; read it from its file"):
        nhwc.optimize(model, IMAGE, plan="plan.json")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="got a str"):
        nhwc.optimize(model, IMAGE, plan=["plan.json"])  # type: ignore[list-item]
    taking(contiguous=10, channels_last=10, planned=5)
    nhwc.optimize(model, IMAGE, plan=[wide, first], candidates=["planned"])
    assert nhwc.optimization_of(model).plan == first
    (enter,) = (hook for hook in model._forward_pre_hooks.values() if isinstance(hook, Enter))
    assert enter.route.plans == {((2, 3, 8, 8),): 0, ((2, 3, 8, 16),): 1}


def test_a_plan_that_is_given_and_not_tried_is_told(taking: Callable[..., Seen]) -> None:
    model = Branching().eval()
    here = {"environment": environment(torch.device("cpu"))}
    taking(contiguous=10, channels_last=10)
    nhwc.optimize(model, IMAGE, plan=replace(mixed(model), **here), candidates=[])
    (note,) = nhwc.optimization_of(model).notes
    assert note == "planned was not tried: a plan was given, but the candidates do not name it"
    taking(contiguous=10, channels_last=10, channels_last__kernels=10, engine=10)
    nhwc.optimize(model, IMAGE, plan=replace(plan(model, {"stem": CONTIGUOUS}, []), **here))
    (note,) = nhwc.optimization_of(model).notes
    assert note == "planned was not tried: the plan has all modules in contiguous"
    nhwc.optimize(model, IMAGE, plan=replace(plan(model, {}, []), **here))
    (note,) = nhwc.optimization_of(model).notes
    assert note == "planned was not tried: the plan has no module with a format to choose"


def test_interrupted_while_it_is_put_on_it_leaves_all_as_it_was(
    taking: Callable[..., Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(contiguous=10, channels_last=10)
    model = net()
    nhwc.optimize(model, IMAGE, candidates=[])
    report = nhwc.optimization_of(model)
    taking(contiguous=10, channels_last=10, channels_last__kernels=5)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for module, name in ((optimizing, "arrange"), (remembering, "dump_optimization")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                nhwc.optimize(model, IMAGE, candidates=["channels_last+kernels"])
        assert not is_arranged(model)
        assert model[0].weight.is_contiguous()
        assert nhwc.optimization_of(model) == report


def test_the_report_of_a_model_that_was_compiled_before(taking: Callable[..., Seen]) -> None:
    for kernels_ms in (10, 5):
        taking(contiguous=10, channels_last=10, channels_last__kernels=kernels_ms)
        compiled = torch.compile(net())
        assert nhwc.optimize(compiled, IMAGE, candidates=["channels_last+kernels"]) is compiled
        assert nhwc.optimization_of(compiled).chosen == ("" if kernels_ms == 10 else "channels_last+kernels")
        nhwc.restore(compiled)
        with pytest.raises(nhwc.ModelError, match="was not optimized"):
            nhwc.optimization_of(compiled)
    taking(contiguous=10, channels_last=8, channels_last__compile=3)
    again = nhwc.optimize(compiled, IMAGE, candidates=["channels_last+compile"])
    assert again._orig_mod is compiled._orig_mod
    assert nhwc.optimization_of(again).form is Form.COMPILED
