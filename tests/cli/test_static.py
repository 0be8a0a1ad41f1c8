"""Models built without memory: what is read back while building still works, and ties stay tied."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from nhwc.cli import static, zoo

CPU = torch.device("cpu")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.lazy = nn.LazyLinear(3)
        self.register_buffer("none", None)
        self.rates = torch.linspace(0, 1, 3).tolist()  # read back while building


def test_nothing_that_is_registered_keeps_memory() -> None:
    with static.weightless():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    assert all(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
    assert not nn.Linear(2, 2).weight.is_meta


def test_the_hooks_are_gone_after_a_failure() -> None:
    with pytest.raises(ValueError, match="mine"), static.weightless():
        raise ValueError("mine")
    assert not nn.BatchNorm2d(2).running_mean.is_meta


def test_ties_gradients_and_lazy_parameters_survive() -> None:
    with static.weightless():
        model = Tied()
    assert model.rates == [0, 0.5, 1]
    with FakeTensorMode():
        static.make_fake(model, CPU)
    assert isinstance(model.first.weight.data, FakeTensor)
    assert model.second.weight is model.first.weight
    assert (model.first.weight.requires_grad, model.frozen.requires_grad) == (True, False)
    assert isinstance(model.lazy.weight, nn.UninitializedParameter)


@pytest.mark.parametrize(
    "name", ["regnet_y_400mf", "vit_b_16", "swin_v2_t", "convnext_atto", "swinv2_tiny_window8_256"]
)
def test_models_that_compute_while_they_are_built(name: str) -> None:
    with static.weightless():
        model, _ = zoo.load(name)
    with FakeTensorMode():
        static.make_fake(model, torch.device("cuda"))
    assert {str(tensor.device) for tensor in [*model.parameters(), *model.buffers()]} == {"cuda:0"}
