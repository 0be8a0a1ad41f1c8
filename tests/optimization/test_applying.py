"""An arrangement goes onto a model whole or not at all, and comes off again."""

from __future__ import annotations

import pytest
import torch
from optimization.made_up_plans import plan
from torch import nn

import nhwc
from nhwc.optimization import applying, arrange, arrangement_of, is_arranged, kernels_of, rearranged, take_off
from nhwc.plan import Plan

IMAGE = torch.randn(2, 3, 8, 8)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Softmax(1), nn.Flatten(), nn.Linear(288, 2))


def test_the_same_numbers_and_the_strides_of_before_afterwards() -> None:
    model = net().eval()
    expected, strides = model(IMAGE), model[0].weight.stride()
    arrange(model, arrangement_of("channels_last+kernels:softmax"))
    assert model[0].weight.stride() != strides
    assert kernels_of(model) == ("softmax",)
    assert torch.allclose(model(IMAGE), expected, atol=1e-6)
    nhwc.restore(model)
    assert (model[0].weight.stride(), type(model)) == (strides, nn.Sequential)
    assert not model._forward_pre_hooks


def test_training_goes_on_with_its_optimizer() -> None:
    torch.manual_seed(0)
    models = [net(), net()]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9, fused=True) for each in models]
    for step in range(4):
        if step == 2:
            arrange(models[1], arrangement_of("channels_last+kernels"), [optimizers[1]])
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(IMAGE).square().sum().backward()
            optimizer.step()
    gradient = models[1][0].weight.grad
    assert gradient is not None
    assert gradient.stride() == models[1][0].weight.stride()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_the_optimizers_state_follows_there_and_back() -> None:
    for arrangement in (arrangement_of("channels_last"), arrangement_of("planned", [in_one(net())])):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(IMAGE).sum().backward()
        optimizer.step()
        weight = model[0].weight
        before = weight.stride()
        arrange(model, arrangement, [optimizer])
        assert optimizer.state[weight]["momentum_buffer"].stride() == weight.stride() != before
        assert take_off(model, optimizer=optimizer)
        assert optimizer.state[weight]["momentum_buffer"].stride() == weight.stride() == before


def in_one(model: nn.Module) -> Plan:
    return plan(model, {"0": "channels_last"}, [])


def test_a_format_is_for_weights_and_inputs() -> None:
    seen = []
    for name in ("contiguous", "channels_last"):
        model = net().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        arrange(model, arrangement_of(name))
        model[0].register_forward_pre_hook(lambda _module, args: seen.append(str(nhwc.layout_of(args[0]).kind)))
        model(IMAGE.to(memory_format=torch.channels_last) if name == "contiguous" else IMAGE)
        assert str(nhwc.layout_of(model[0].weight).kind) == name
    assert seen == ["contiguous", "channels_last"]


def test_what_is_on_a_model_is_known_and_taken_off() -> None:
    model = net()
    assert not is_arranged(model)
    assert not take_off(model)
    arrange(model, arrangement_of("channels_last"))
    assert not is_arranged(model)
    assert take_off(model)
    arrange(model, arrangement_of("channels_last+kernels:softmax"))
    assert is_arranged(model)
    assert take_off(model)
    assert not is_arranged(model)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_stays_where_it_is_interrupted(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(applying, "convert", interrupted)
    with pytest.raises(error):
        arrange(model, arrangement_of("channels_last+kernels"))
    assert type(model) is nn.Sequential
    assert vars(model).keys() == vars(net()).keys()


def test_a_copy_is_arranged_and_the_model_left_alone() -> None:
    model = net()
    copied = rearranged(model, arrangement_of("channels_last"))
    assert copied[0].weight.stride() != model[0].weight.stride()
    assert not model._forward_pre_hooks


def test_a_model_that_cannot_be_copied_is_told_in_one_sentence() -> None:
    model = net()
    model.lock = torch.randn(2, requires_grad=True) * 2  # type: ignore[assignment]
    with pytest.raises(nhwc.ModelError, match="cannot be copied"):
        rearranged(model, arrangement_of("channels_last"))


@pytest.mark.parametrize("spec", ["as_is", "channels_last+bf16", "engine+compile", "planned"])
def test_what_is_no_arrangement(spec: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        arrangement_of(spec)
