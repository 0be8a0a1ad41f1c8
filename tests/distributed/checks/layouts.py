"""Ranks that differ are told so, all of them, before anything travels."""

from __future__ import annotations

import pytest
import torch
from distributed.checks.models import network
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import nhwc
from nhwc.distributed import World, data_parallel, fully_shard, require_same_layouts
from nhwc.errors import DistributedError


def others(here: World) -> str:
    return "rank 1" if here.size == 2 else "ranks 1, 2, 3"


def check_the_same_layouts_pass(here: World) -> None:
    require_same_layouts(network())
    require_same_layouts(nhwc.convert(network()))
    require_same_layouts(DistributedDataParallel(network()))
    require_same_layouts(fully_shard(nhwc.convert(network())))


def check_strides(here: World) -> None:
    for wrap in (require_same_layouts, data_parallel, fully_shard):
        model = network()
        if here.rank > 0:
            nhwc.convert(model)
        strides = [parameter.stride() for parameter in model.parameters()]
        with pytest.raises(DistributedError) as caught:
            wrap(model)
        assert str(caught.value) == (
            "0.weight is not the same on all ranks, so that collectives would permute its values: float64 (8, 3, 3, 3) "
            f"with strides (27, 9, 3, 1) on rank 0, float64 (8, 3, 3, 3) with strides (27, 1, 9, 3) on {others(here)}; "
            "build and convert the model in the same way on every rank"
        )
        assert [parameter.stride() for parameter in model.parameters()] == strides
        assert type(model) is nn.Sequential
        assert type(model[0]) is nn.Conv2d


def check_types_and_names(here: World) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    if here.rank == 0:
        model[1].running_mean = model[1].running_mean.double()
    with pytest.raises(
        DistributedError, match=r"1\.running_mean is not .* float64 \(4,\) with strides \(1,\) on rank 0"
    ):
        require_same_layouts(model)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=here.rank == 0))
    with pytest.raises(DistributedError, match=rf"0\.bias is not .* missing on {others(here)}"):
        require_same_layouts(model)


def check_the_order_of_parameters(here: World) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.ModuleDict({"a": first, "b": second} if here.rank else {"b": second, "a": first})
    with pytest.raises(DistributedError, match="the same tensors in another order"):
        require_same_layouts(model)


def check_refusals_leave_the_model_as_it_was(here: World) -> None:
    plain, lazy = network(), nn.Sequential(nn.LazyConv2d(3, 3))
    for verb in (data_parallel, fully_shard):
        name = verb.__name__
        for wrong, message in (
            (None, f"{name} takes a torch.nn.Module, got NoneType"),
            (DistributedDataParallel(network()), f"{name}: DistributedDataParallel holds the model already; pass"),
            (nn.Sequential(nn.ReLU(), DistributedDataParallel(network())), "holds the model already at 1; pass"),
            (fully_shard(network()), "fully_shard holds the model already"),
            (lazy, r"0\.weight is not initialized yet; run the model once first"),
            (nn.Conv2d(3, 3, 3, device="meta"), "weight is on the meta device"),
        ):
            with pytest.raises(DistributedError, match=message):
                verb(wrong)
        with pytest.raises(DistributedError, match="has no option 'buckets'; it has "):
            verb(plain, buckets=3)
    with pytest.raises(DistributedError, match="no parameter requires a gradient"):
        data_parallel(network().requires_grad_(False))
    with pytest.raises(DistributedError, match=r"blocks: 11\.x is no part of this Sequential"):
        fully_shard(plain, blocks=["11.x"])
    with pytest.raises(DistributedError, match="blocks: Conv3d is no part"):
        fully_shard(plain, blocks=[nn.Conv3d])
    with pytest.raises(DistributedError, match="ModuleList is never called; choose the modules inside"):
        fully_shard(nn.ModuleList([network()]))
    odd = nhwc.convert(network())
    odd[10].weight = nn.Parameter(odd[10].weight.t().contiguous().t())
    with pytest.raises(
        DistributedError, match=r"10\.weight is neither contiguous nor the channels-last weight of a conv"
    ):
        fully_shard(odd)
    assert type(odd[0]) is nn.Conv2d
    assert odd[0].weight.stride() == (27, 1, 9, 3)
    scalar = nn.Sequential(nn.Conv2d(3, 3, 3))
    scalar.register_parameter("scale", nn.Parameter(torch.ones(())))
    with pytest.raises(DistributedError, match="scale is a scalar; give it one dimension"):
        fully_shard(scalar)
    held = nhwc.convert(network())
    optimizer = torch.optim.SGD(held[1].parameters(), lr=0.1)
    with pytest.raises(
        DistributedError, match="an SGD holds the parameters already, and would go on with the old ones"
    ):
        fully_shard(held)
    del optimizer
    fully_shard(held)
    assert [type(layer) for layer in plain] == [type(layer) for layer in network()]


def check_a_sharded_model_is_none_for_convert(here: World) -> None:
    model = fully_shard(nhwc.convert(network(), inputs=True))
    with pytest.raises(nhwc.ConversionError, match=r"convert before nhwc\.distributed\.fully_shard"):
        nhwc.restore(model)
    seen = []
    model[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].stride()))
    model(torch.randn(4, 3, 12, 12, dtype=torch.float64))
    assert seen == [(432, 1, 36, 3)]  # the door of inputs= stays
