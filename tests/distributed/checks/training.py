"""Several ranks train as one process does, and nothing is copied for its layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from distributed.checks.models import adam, batch, network, same, sgd, share, train, volumes
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp import fully_shard as torch_fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import nhwc
from nhwc.distributed import (
    World,
    accumulating,
    data_parallel,
    full_state_dict,
    fully_shard,
    joined,
    sync_batch_norm,
)


class Copies(TorchDispatchMode):
    """The operators that copy an image or a weight, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name.startswith(("aten.clone", "aten.copy_", "aten._to_copy", "aten.contiguous")) and args[0].dim() >= 4:
            self.seen.append(f"{name} {tuple(args[0].shape)} {args[0].stride()}")
        return func(*args, **(kwargs or {}))


def mean_over_ranks(losses: list[float], here: World) -> list[float]:
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / here.size).tolist()


def check_the_world(here: World) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (here.rank, here.size, "gloo")
    with joined("cpu") as again:  # the group stays that of the outer block
        assert again == here
    assert dist.is_initialized()


def check_replicas_equal_one_process_at_the_same_global_batch(here: World) -> None:
    whole = batch()
    one = nhwc.convert(network())
    optimizer = adam(one)
    wanted_losses = train(one, whole, optimizer)
    many = data_parallel(nhwc.convert(sync_batch_norm(network())))
    own = adam(many)
    losses = train(many, share(whole, here), own)
    assert mean_over_ranks(losses, here) == pytest.approx(wanted_losses, rel=1e-9)
    same(full_state_dict(many, own), full_state_dict(one, optimizer))


def check_shards_equal_replicas(here: World) -> None:
    seen = share(batch(), here)
    replicated = data_parallel(nhwc.convert(sync_batch_norm(network())))
    wanted_optimizer = sgd(replicated)
    wanted = train(replicated, seen, wanted_optimizer)
    for blocks in ([], ["0", "5", nn.Conv2d], None):
        sharded = fully_shard(nhwc.convert(sync_batch_norm(network())), blocks=blocks)
        optimizer = sgd(sharded)
        assert train(sharded, seen, optimizer) == pytest.approx(wanted, rel=1e-9)
        same(full_state_dict(sharded, optimizer), full_state_dict(replicated, wanted_optimizer))


def check_volumes(here: World) -> None:
    whole = batch(8, 2, 5, 6, 7)
    one = nhwc.convert(volumes())
    optimizer = adam(one)
    train(one, whole, optimizer)
    for many in (data_parallel(nhwc.convert(volumes())), fully_shard(nhwc.convert(volumes()), blocks=["0", "2"])):
        own = adam(many)
        train(many, share(whole, here), own)
        same(full_state_dict(many, own), full_state_dict(one, optimizer))


def check_torchs_own_refuses_such_a_model(here: World) -> None:
    """The hazard itself: where torch takes it, other storage is needed no more."""
    with pytest.raises(NotImplementedError, match="FSDP does not support non-contiguous parameters"):
        torch_fully_shard(nhwc.convert(network()))


def check_shards_start_from_the_first_rank(here: World) -> None:
    model = network()
    wanted = {name: value.clone() for name, value in nhwc.convert(network()).state_dict().items()}
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data.add_(here.rank)
    same(full_state_dict(fully_shard(nhwc.convert(model)))["model"], wanted)


def check_a_fused_optimizer_over_shards(here: World) -> None:
    seen = share(batch(), here)
    results = []
    for fused in (False, True):
        sharded = fully_shard(nhwc.convert(network()))
        optimizer = adam(sharded, fused)
        train(sharded, seen, optimizer)
        results.append(full_state_dict(sharded, optimizer)["model"])
    same(*results)


def check_gradients_are_views_into_buckets(here: World) -> None:
    seen = share(batch(), here)
    wrapped = data_parallel(nhwc.convert(network()))
    for _ in range(3):  # torch builds its buckets anew behind the first step
        wrapped.zero_grad(set_to_none=False)
        functional.cross_entropy(wrapped(seen[0]), seen[1]).backward()
    gradients = [parameter.grad for parameter in wrapped.parameters()]
    assert all(g is not None for g in gradients)
    assert len({g.untyped_storage().data_ptr() for g in gradients}) == 1
    assert [g.stride() for g in gradients] == [parameter.stride() for parameter in wrapped.parameters()]


def check_no_warning_about_strides_whoever_made_the_model(here: World) -> None:
    """A warning is an error here."""
    seen = share(batch(), here)
    lone = nn.Conv2d(8, 8, 3, groups=8, bias=False).double()
    last = {"memory_format": torch.channels_last}
    for model, images in (
        (nhwc.convert(network()), seen[0]),
        (nhwc.convert(network()), seen[0].contiguous()),
        (network().to(**last), seen[0]),
        (
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1)),
            torch.randn(2, 8, 6, 6).to(**last),
        ),
        (lone.to(**last), torch.randn(2, 8, 6, 6, dtype=torch.float64).to(**last)),
        (nhwc.convert(volumes()), share(batch(8, 2, 5, 6, 7), here)[0]),
    ):
        wrapped = data_parallel(model)
        for _ in range(2):
            wrapped(images).sum().backward()
        assert all(p.grad.stride() == p.stride() for p in wrapped.parameters())


def check_shards_show_the_layer_the_usual_weight_without_a_copy(here: World) -> None:
    seen = share(batch(), here)
    model = fully_shard(nhwc.convert(network()), blocks=["0"])
    shown = {}

    def look(module: nn.Module, _: object) -> None:
        weight = module.weight
        shown[module] = (type(weight), tuple(weight.shape), weight.stride())

    for layer in (model[0], model[3]):
        layer.register_forward_pre_hook(look)
    assert isinstance(model[0].weight, DTensor)
    assert tuple(model[0].weight.shape) == (8, 3, 3, 3)
    assert tuple(model[3].weight.shape) == (8, 3, 3, 1)
    optimizer = sgd(model)
    train(model, seen, optimizer, steps=2)
    assert shown[model[0]] == (torch.Tensor, (8, 3, 3, 3), (27, 1, 9, 3))
    assert shown[model[3]] == (torch.Tensor, (8, 1, 3, 3), (9, 1, 3, 1))
    plain = nhwc.convert(network())
    expected, found = Copies(), Copies()
    with expected:
        functional.cross_entropy(plain(seen[0]), seen[1]).backward()
    with found:
        functional.cross_entropy(model(seen[0]), seen[1]).backward()
    assert found.seen == expected.seen == []
    assert isinstance(model[0]._parameters["weight"].grad, DTensor)


def check_gradients_add_up_without_a_word_between_ranks(here: World) -> None:
    whole = batch(16, 3, 12, 12)
    halves = [(whole[0][:8], whole[1][:8]), (whole[0][8:], whole[1][8:])]
    one = nhwc.convert(network()).eval()
    functional.cross_entropy(one(whole[0]), whole[1]).backward()
    wanted = {name: parameter.grad for name, parameter in one.named_parameters()}
    for wrap in (data_parallel, fully_shard):
        model = wrap(nhwc.convert(network()).eval())
        first, second = (share(half, here) for half in halves)
        with accumulating(model):
            (functional.cross_entropy(model(first[0]), first[1]) / 2).backward()
        if wrap is data_parallel:  # each rank has the gradient of its own images so far
            gathered = [torch.empty_like(model.module[0].bias) for _ in range(here.size)]
            dist.all_gather(gathered, model.module[0].bias.grad)
            assert not torch.allclose(gathered[0], gathered[1])
        else:
            model.reshard()
            assert model[0].bias.grad is None
        (functional.cross_entropy(model(second[0]), second[1]) / 2).backward()
        if wrap is data_parallel:
            found = {name.removeprefix("module."): p.grad for name, p in model.named_parameters()}
        else:
            found = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
            for layer in ("0", "5.0"):
                found[f"{layer}.weight"] = found[f"{layer}.weight"].permute(0, 3, 1, 2)
        for name in ("0.weight", "0.bias", "5.0.weight", "10.weight"):
            torch.testing.assert_close(found[name], wanted[name])


def check_mixed_precision_and_memory_options_reach_torch(here: World) -> None:
    seen = share(batch(8, 2, 5, 6, 7, dtype=torch.float32), here)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = fully_shard(nhwc.convert(volumes().float()), mp_policy=policy, reshard_after_forward=True)
    output = model(seen[0])
    assert output.dtype is torch.bfloat16
    functional.cross_entropy(output, seen[1]).backward()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
    assert isinstance(model[0].weight, DTensor)  # the weights are in shares again


def check_tied_weights_stay_tied(here: World) -> None:
    def tied() -> nn.Sequential:
        torch.manual_seed(0)
        first, second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
        second.weight = first.weight
        return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5)).double()

    whole = batch()
    one = nhwc.convert(tied())
    wanted_optimizer = sgd(one)
    train(one, whole, wanted_optimizer)
    many = fully_shard(nhwc.convert(tied()))
    optimizer = sgd(many)
    train(many, share(whole, here), optimizer)
    full = full_state_dict(many, optimizer)
    same(full, full_state_dict(one, wanted_optimizer))
    assert full["model"]["0.weight"] is full["model"]["1.weight"]
