"""torch.distributed for models in channels last: replicated, sharded, saved and loaded, on gloo and NCCL."""

from __future__ import annotations

from nhwc.distributed.accumulation import accumulating
from nhwc.distributed.batch_norm import sync_batch_norm
from nhwc.distributed.full_state import full_state_dict, load_full_state_dict
from nhwc.distributed.layouts import require_same_layouts
from nhwc.distributed.replication import data_parallel
from nhwc.distributed.sharded_state import load_sharded, save_sharded
from nhwc.distributed.sharding import fully_shard
from nhwc.distributed.world import World, joined, world

__all__ = [
    "World",
    "accumulating",
    "data_parallel",
    "full_state_dict",
    "fully_shard",
    "joined",
    "load_full_state_dict",
    "load_sharded",
    "require_same_layouts",
    "save_sharded",
    "sync_batch_norm",
    "world",
]
