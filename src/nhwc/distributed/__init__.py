"""torch.distributed for models in channels last: replicated, sharded, saved and loaded, on gloo and NCCL.

Names load on first use: torch's FSDP and checkpoints take about half as long to import as torch itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nhwc.distributed.accumulation import accumulating
    from nhwc.distributed.batch_norm import sync_batch_norm
    from nhwc.distributed.full_state import full_state_dict, load_full_state_dict
    from nhwc.distributed.layouts import require_same_layouts
    from nhwc.distributed.ranks import World, joined, world
    from nhwc.distributed.replication import data_parallel
    from nhwc.distributed.sharded_state import load_sharded, save_sharded
    from nhwc.distributed.sharding import fully_shard

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

_HOME_OF = {
    "World": "ranks",
    "accumulating": "accumulation",
    "data_parallel": "replication",
    "full_state_dict": "full_state",
    "fully_shard": "sharding",
    "joined": "ranks",
    "load_full_state_dict": "full_state",
    "load_sharded": "sharded_state",
    "require_same_layouts": "layouts",
    "save_sharded": "sharded_state",
    "sync_batch_norm": "batch_norm",
    "world": "ranks",
}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'nhwc.distributed' has no attribute {name!r}")
    value: object = getattr(import_module(f"nhwc.distributed.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
