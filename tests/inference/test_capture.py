"""Capture: what cannot be captured says where and why, and the model stays as it was."""

from typing import Any

import pytest
import torch
from inference.engines import fast

from nhwc.errors import EngineError
from nhwc.inference.specialization import graph_of


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # the line
            return x
        return -x


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


def test_a_branch_on_data_is_named_with_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match=r"torch\.export cannot take the model at .*test_capture\.py:15 in forward"):
        graph_of(Branching().eval(), (torch.randn(3),), {})
    assert "def forward" not in capfd.readouterr().err


def test_training_mode_is_refused_by_name() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)).eval()
    model[1].train()
    with pytest.raises(EngineError, match="and 1 is in training mode; call eval"):
        graph_of(model, (torch.randn(1, 3, 4, 4),), {})


def test_a_model_that_writes_its_buffers_is_refused() -> None:
    with pytest.raises(EngineError, match=r"writes into its own weights at .*forward|changes its buffer"):
        graph_of(Counting().eval(), (torch.randn(3),), {})


def test_the_model_and_global_state_stay_as_they_were() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)).eval()
    before = {
        name: (tensor, tensor.clone(), tensor._version) for name, tensor in model.state_dict(keep_vars=True).items()
    }
    random = torch.random.get_rng_state()
    fast(model, torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(random, torch.random.get_rng_state())
    assert torch.is_grad_enabled()
    for name, tensor in model.state_dict(keep_vars=True).items():
        held, value, version = before[name]
        assert tensor is held
        assert torch.equal(tensor, value)
        assert tensor._version == version
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


class Pairs(torch.nn.Module):
    def forward(self, x: dict[str, torch.Tensor], *, scale: float = 1.0) -> dict[str, Any]:
        return {"a": [x["one"] * scale, None, 3], "b": (x["two"],)}


def test_structured_arguments_and_results_keep_their_structure() -> None:
    model = Pairs().eval()
    x = {"one": torch.randn(2, 3), "two": torch.randn(4)}
    result = fast(model, x)(x)
    assert list(result) == ["a", "b"]
    assert torch.equal(result["a"][0], x["one"])
    assert result["a"][1:] == [None, 3]
    assert torch.equal(result["b"][0], x["two"])
