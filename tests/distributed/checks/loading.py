"""Four ranks go on with what two have saved: in shares of another size, one of them empty."""

from __future__ import annotations

import os
from pathlib import Path

from distributed.checks import norm
from distributed.checks.models import network
from distributed.checks.states import load_and_go_on, replicated, sharded
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import nhwc
from nhwc.distributed import World, fully_shard

SAVED = Path(os.environ.get("SAVED", ""))


def check_shares_of_another_size(here: World) -> None:
    load_and_go_on(here, SAVED, build=sharded)


def check_replicas(here: World) -> None:
    load_and_go_on(here, SAVED, build=replicated)


def check_batch_norm_where_a_rank_has_no_image(here: World) -> None:
    norm.check_one_process_on_the_whole_batch(here)
    norm.check_half_and_single_precision(here)


def check_shards_of_replicas(here: World) -> None:
    """Two groups of two ranks: shares inside of a group, the same shares in both."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))

    def build() -> nn.Module:
        return fully_shard(nhwc.convert(network()), mesh=mesh)

    weight = build()[0].weight
    assert isinstance(weight, DTensor)
    assert weight.to_local().shape == (4, 3, 3, 3)
    load_and_go_on(here, SAVED, build=build)
