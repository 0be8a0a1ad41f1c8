"""A compiled model: what its graph calls is seen with strides, and what cannot be seen is said."""

import pytest
import torch
from torch import nn

import nhwc
from nhwc.recorder.compiled import is_compiled

pytestmark = pytest.mark.slow  # each test compiles a graph, half a minute on two cores


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))


def test_the_trace_of_a_compiled_model_lists_its_convolutions_and_says_what_is_hidden(model: nn.Module) -> None:
    model = nhwc.convert(model)
    compiled = torch.compile(model)
    assert isinstance(compiled, nn.Module)
    assert is_compiled(compiled)
    assert not is_compiled(model)
    images = torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)
    trace = nhwc.record(compiled, images)
    assert trace.mode == "compiled"
    convolutions = [call for call in trace.calls if call.name == "convolution"]
    assert [call.inputs[0].shape for call in convolutions] == [(2, 3, 16, 16), (2, 8, 16, 16)]
    assert all(call.inputs[0].strides[1] == 1 for call in convolutions)
    assert any("fuses" in limit for limit in trace.limits)
    assert any(call.operator.startswith("inductor.") for call in trace.calls)


def test_auditing_with_compile_leaves_the_model_as_it_was(model: nn.Module) -> None:
    before = {name: tensor.stride() for name, tensor in model.named_parameters()}
    report = nhwc.audit(model, torch.randn(2, 3, 16, 16), compile=True, train=True, repeats=1)
    assert report.trace.mode == "compiled"
    assert {call.phase for call in report.trace.calls} == {nhwc.Phase.FORWARD, nhwc.Phase.BACKWARD}
    assert {name: tensor.stride() for name, tensor in model.named_parameters()} == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not is_compiled(model)


def test_a_compiled_model_that_raises_gives_one_sentence() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 7)

    with pytest.raises(nhwc.ModelError, match=r"raised .*"):
        nhwc.record(torch.compile(Broken()), torch.randn(2, 3))
