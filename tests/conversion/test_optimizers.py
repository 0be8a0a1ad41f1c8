"""Optimizer state follows its parameter, and a state that would not is refused."""

import copy
import gc
import io

import pytest
import torch
from torch import nn

from nhwc.conversion import convert, restore
from nhwc.errors import ConversionError

FUSED = {
    "adam": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, fused=True),
}
OTHER = {
    "adamw_loop": lambda p: torch.optim.AdamW(p, 1e-2, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.9, centered=True),
}
BATCH = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(BATCH).square().mean().backward()
        optimizer.step()


def assert_same_weights(model, reference):
    for (name, got), want in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=name)


def assert_following(optimizer):
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if torch.is_tensor(value) and value.shape == parameter.shape:
                assert value.stride() == parameter.stride(), key


def reference(make, steps):
    model = build()
    optimizer = make(model.parameters())
    train(model, optimizer, steps)
    return model, optimizer


@pytest.mark.parametrize("name", [*FUSED, *OTHER])
def test_training_goes_on_as_it_would_have(name):
    make = {**FUSED, **OTHER}[name]
    model, optimizer = reference(make, 3)
    convert(model, optimizer=optimizer)
    assert_following(optimizer)
    train(model, optimizer, 3)
    assert_following(optimizer)
    assert_same_weights(model, reference(make, 6)[0])
    restore(model)
    assert_following(optimizer)
    train(model, optimizer, 3)
    assert_same_weights(model, reference(make, 9)[0])


@pytest.mark.parametrize("name", FUSED)
def test_a_contiguous_checkpoint_loaded_later_follows(name):
    _, finished = reference(FUSED[name], 3)
    checkpoint = io.BytesIO()
    torch.save(finished.state_dict(), checkpoint)
    checkpoint.seek(0)
    start, _ = reference(FUSED[name], 3)
    model = copy.deepcopy(start)
    optimizer = FUSED[name](model.parameters())
    convert(model, optimizer=optimizer)
    optimizer.load_state_dict(torch.load(checkpoint))
    assert_following(optimizer)
    train(model, optimizer, 3)
    assert_same_weights(model, reference(FUSED[name], 6)[0])


def test_restore_takes_the_hook_off():
    model, optimizer = reference(FUSED["adamw"], 1)
    stored = copy.deepcopy(optimizer.state_dict())
    before = dict(optimizer._optimizer_load_state_dict_post_hooks)
    saving = dict(optimizer._optimizer_state_dict_post_hooks)
    convert(model, optimizer=[optimizer])
    hung = dict(optimizer._optimizer_load_state_dict_post_hooks)
    convert(model, optimizer=optimizer)
    assert optimizer._optimizer_load_state_dict_post_hooks == hung != before
    restore(model)
    assert optimizer._optimizer_load_state_dict_post_hooks == before
    assert optimizer._optimizer_state_dict_post_hooks == saving
    optimizer.load_state_dict(stored)
    assert_following(optimizer)


@pytest.mark.parametrize("name", [*FUSED, *OTHER])
def test_state_that_would_stay_behind_is_refused(name):
    make = {**FUSED, **OTHER}[name]
    model, optimizer = reference(make, 1)
    before = [p.stride() for p in model.parameters()]
    with pytest.raises(ConversionError, match=r"0\.weight: a live \w+ keeps its \w+ in the old strides.*optimizer="):
        convert(model)
    assert [p.stride() for p in model.parameters()] == before
    convert(model, optimizer=optimizer)


def test_restore_refuses_an_optimizer_it_does_not_know():
    model = convert(build())
    optimizer = FUSED["adamw"](model.parameters())
    train(model, optimizer, 1)
    with pytest.raises(ConversionError, match="a live AdamW keeps its exp_avg"):
        restore(model)
    restore(model, optimizer=optimizer)
    assert_following(optimizer)


def test_an_optimizer_kept_only_by_a_cycle_does_not_count():
    model, optimizer = reference(FUSED["adamw"], 1)
    optimizer.itself = optimizer
    gc.disable()
    try:
        del optimizer
        convert(model)
    finally:
        gc.enable()


def test_a_live_optimizer_without_state_follows_what_it_loads():
    _, finished = reference(FUSED["adamw"], 3)
    model = build()
    optimizer = FUSED["adamw"](model.parameters())
    convert(model)
    optimizer.load_state_dict(copy.deepcopy(finished.state_dict()))
    assert_following(optimizer)


def test_an_optimizer_made_and_resumed_later_is_healed_by_a_second_call():
    _, finished = reference(FUSED["adamw"], 3)
    model = convert(build())
    optimizer = FUSED["adamw"](model.parameters())
    optimizer.load_state_dict(copy.deepcopy(finished.state_dict()))
    assert optimizer.state[model[0].weight]["exp_avg"].stride() == (27, 9, 3, 1)
    convert(model, optimizer=optimizer)
    assert_following(optimizer)
    assert optimizer.state[model[0].weight]["exp_avg"].stride() == (27, 1, 9, 3)


def test_only_free_restrides_need_no_optimizer():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.randn(1, 8, 4, 4)).sum().backward()
    optimizer.step()
    convert(model)
    assert model[0].weight.stride() == (9, 1, 3, 1)


def test_lbfgs_is_refused():
    model = build()
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ConversionError, match=r"0\.weight: LBFGS flattens gradients"):
        convert(model, optimizer=optimizer)
    with pytest.raises(ConversionError, match="LBFGS"):
        convert(model)
    later = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 4, 3))
    other = torch.optim.LBFGS(later.parameters())
    with pytest.raises(ConversionError, match=r"1\.weight: LBFGS"):
        convert(later)
    del other


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(ConversionError, match="optimizer= is AdamW over no parameter of this model"):
        convert(build(), optimizer=torch.optim.AdamW(build().parameters()))
    with pytest.raises(ConversionError, match="takes a torch optimizer or several, got str"):
        convert(build(), optimizer=["adam"])


def test_the_model_does_not_keep_its_optimizer_alive():
    model, optimizer = reference(FUSED["adamw"], 1)
    convert(model, optimizer=optimizer)
    del optimizer
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is torch.optim.AdamW and model[0].weight in list(o.state)[:1]]
    restore(model)
