"""Module paths: shared modules, functional calls, several models, modules that run twice, recomputation."""

from __future__ import annotations

import pytest
import torch
from recorder.conftest import TRAIN, Small
from recorder.test_calls import calls, only
from torch import nn
from torch.utils.checkpoint import checkpoint

from nhwc.model import Phase, Trace
from nhwc.recorder import Options, record

pytestmark = pytest.mark.usefixtures("few_threads")


def paths(trace: Trace, name: str) -> list[str]:
    return [call.module for call in calls(trace, name)]


def test_nested_paths_and_layers_in_order_of_use(small: Small, image: torch.Tensor) -> None:
    trace = record(small, image)
    assert paths(trace, "convolution") == ["conv", "block.0.0"]
    assert paths(trace, "mean") == [""]
    assert trace.layers == (
        ("conv", "Conv2d"),
        ("norm", "BatchNorm2d"),
        ("block.0.0", "Conv2d"),
        ("block.0.1", "ReLU"),
        ("block.1", "Dropout"),
        ("head", "Linear"),
    )
    assert trace.confusions == ()


def test_a_module_without_children_that_is_falsy_is_a_layer() -> None:
    assert record(nn.Sequential(nn.Sequential()), torch.ones(1)).layers == (("0", "Sequential"),)


def test_functional_code_belongs_to_the_module_that_runs() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.conv2d(x, self.conv.weight)

    call = only(record(nn.Sequential(Functional()), torch.ones(1, 1, 2, 2)), "convolution")
    assert (call.module, call.module_type, call.inputs[1].name) == ("0", "Functional", "0.conv.weight")


def test_a_module_that_runs_twice_has_one_path_and_no_confusion() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.act(x))

    trace = record(Twice(), torch.ones(1))
    assert paths(trace, "relu") == ["act", "act"]
    assert trace.confusions == ()


def test_a_shared_module_is_told_apart_by_its_caller() -> None:
    act = nn.ReLU()
    trace = record(nn.Sequential(nn.Sequential(act), nn.Sequential(act)), torch.ones(1))
    assert paths(trace, "relu") == ["0.0", "1.0"]
    assert trace.confusions == ()


def test_a_shared_module_that_its_caller_owns_itself_has_that_path() -> None:
    class Owns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU())
            self.act = self.inner[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.inner(x))

    trace = record(Owns(), torch.ones(1))
    assert paths(trace, "relu") == ["inner.0", "act"]
    assert trace.confusions == ()


def test_a_shared_module_under_one_caller_is_a_confusion() -> None:
    act = nn.ReLU()
    trace = record(nn.Sequential(act, act), torch.ones(1))
    assert paths(trace, "relu") == ["0", "0"]
    assert trace.confusions == ("module '0' is shared by 2 paths (0, 1); its calls are listed under one",)


def test_tied_weights_have_one_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    trace = record(model, torch.ones(1, 2))
    assert [parameter.name for parameter in trace.parameters] == ["0.weight"]
    assert {call.inputs[0].name for call in calls(trace, "t")} == {"0.weight"}


def test_several_models_in_a_callable() -> None:
    class Generator(nn.Sequential):
        pass

    class Critic(nn.Sequential):
        pass

    generator = Generator(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    critic = Critic(nn.Linear(2, 1), nn.Sigmoid())
    part = generator[0]
    trace = record(lambda x: (critic(generator(x)), part(x)), torch.ones(1, 2))
    assert paths(trace, "addmm") == ["0", "2", "Critic.0", "0"]
    assert [parameter.name for parameter in trace.parameters if "weight" in parameter.name] == [
        "0.weight",
        "2.weight",
        "Critic.0.weight",
    ]
    assert calls(trace, "t")[2].inputs[0].name == "Critic.0.weight"


def test_a_module_that_is_made_in_the_step() -> None:
    trace = record(lambda x: nn.Sequential(nn.ReLU())(x), torch.ones(1))
    assert paths(trace, "relu") == ["0"]

    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x)

    assert paths(record(nn.Sequential(Makes()), torch.ones(1)), "relu") == ["0.ReLU"]


def test_a_module_that_raises_and_is_caught_leaves_the_stack() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad = Raises()
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                self.bad(x)
            except KeyboardInterrupt:
                return self.act(x)
            return x

    class Outer(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).exp()

    trace = record(Outer(Catches()), torch.ones(1))
    assert paths(trace, "relu") == ["0.act"]
    assert paths(trace, "exp") == [""]


class Block(nn.Module):
    """A segment whose ReLU is a plain function, so that only its source line tells where it belongs."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.reentrant = reentrant

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)).exp())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inside, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_calls_are_backward_under_their_own_module(reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), Block(reentrant), Block(reentrant))
    trace = record(model, torch.ones(1, 2), options=TRAIN)
    again = [call for call in calls(trace, "addmm") if call.phase is Phase.BACKWARD]
    assert [call.module for call in again][:1] == ["2.first"]
    assert {call.module for call in again} >= {"1.first", "2.first"}
    functional = [call for call in calls(trace, "relu") if call.phase is Phase.BACKWARD]
    assert [(call.module, call.module_type, call.forward) for call in functional] == [
        ("2", "Block", None),
        ("1", "Block", None),
    ]
    assert paths(trace, "threshold_backward") == ["2", "1"]
    for call in calls(trace, "threshold_backward"):
        assert call.forward is not None
        assert trace.calls[call.forward].name == "relu"


def test_autocast_casts_are_recorded_where_they_happen(small: Small, image: torch.Tensor) -> None:
    trace = record(small, image, options=Options(train=True, amp=torch.bfloat16))
    casts = calls(trace, "_to_copy")
    assert {(call.inputs[0].name, call.module) for call in casts} >= {("conv.weight", "conv"), ("input 0", "conv")}
    assert calls(trace, "convolution")[0].outputs[0].dtype == "bfloat16"
    back = [call for call in casts if call.phase is Phase.BACKWARD and call.module == "conv"]
    assert all(call.forward is not None and trace.calls[call.forward].name == "_to_copy" for call in back)
    assert back


def test_gradients_are_listed_with_their_strides(small: Small, image: torch.Tensor) -> None:
    small.to(memory_format=torch.channels_last)
    trace = record(small, image.to(memory_format=torch.channels_last), options=TRAIN)
    (weight,) = [parameter for parameter in trace.parameters if parameter.name == "conv.weight"]
    assert weight.gradient is not None
    assert weight.gradient.shape == (4, 3, 3, 3)
    assert weight.gradient.strides == weight.tensor.strides == (27, 1, 9, 3)
    assert weight.module_type == "Conv2d"


def test_lazy_modules_are_initialised_and_the_trace_says_so() -> None:
    model = nn.Sequential(nn.LazyConv2d(2, 1), nn.LazyBatchNorm2d())
    trace = record(model, torch.ones(1, 3, 2, 2))
    assert any("initialises '0.weight'" in limit for limit in trace.limits)
    assert only(trace, "convolution").module == "0"
