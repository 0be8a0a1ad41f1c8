"""Who this process is among the ranks that torchrun started, and the process group around a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed

from nhwc.distributed.wrappers import has_group
from nhwc.errors import DistributedError

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class World:
    """rank: 0 to size - 1, over all machines. local_rank: the same on this machine, which is also the index of its
    GPU. size: how many processes there are."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the one that prints and saves."""
        return self.rank == 0


def world() -> World:
    """What torchrun told this process in its environment; one process of one where it told nothing.

    Raises DistributedError where the variables are there in part, are no integers, or contradict each other.

    >>> world()
    World(rank=0, local_rank=0, size=1)
    """
    told = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if not told:
        return World()
    if len(told) < len(_VARIABLES) or not all(value.isdecimal() for value in told.values()):
        found = ", ".join(f"{name}={value}" for name, value in told.items())
        raise DistributedError(
            f"the environment has {found}, but RANK, LOCAL_RANK and WORLD_SIZE belong together, each an integer; start "
            "with torchrun, or unset them to run one process"
        )
    rank, local_rank, size = (int(told[name]) for name in _VARIABLES)
    if rank >= size or local_rank > rank:
        raise DistributedError(
            f"RANK={rank}, LOCAL_RANK={local_rank} and WORLD_SIZE={size} contradict each other; start with torchrun"
        )
    return World(rank, local_rank, size)


@contextmanager
def joined(device: torch.device | str | None = None, *, timeout_s: float = 1800.0) -> Iterator[World]:
    """The process group of a run: made on entry, destroyed on exit, after an exception too; yields the ``World``.

    device: where the model will be. On "cuda" collectives run on NCCL, and the GPU of this rank's index becomes the
        current one; on "cpu" they run on gloo. By default CUDA where it is there.
    timeout_s: seconds after which a collective that waits for a lost rank gives up.

    Nothing happens for one process, and where a process group exists already: that one stays.
    Raises DistributedError where the ranks do not meet, where there are fewer GPUs than ranks on this machine, and
    where this torch is built without torch.distributed.
    """
    here = world()
    if here.size == 1 or has_group():
        yield here
        return
    if not distributed.is_available():
        raise DistributedError(f"this torch is built without torch.distributed, so that {here.size} ranks cannot meet")
    kind = _device_type(device)
    if kind == "cuda" and here.local_rank >= torch.cuda.device_count():
        raise DistributedError(
            f"local rank {here.local_rank} has no GPU of its own, {torch.cuda.device_count()} are there; start as many "
            "processes as there are GPUs, or pass device='cpu'"
        )
    try:
        _meet(kind, here, timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:  # torch's own errors of distributed are RuntimeErrors
        raise DistributedError(
            f"rank {here.rank} of {here.size} did not meet the others ({error}); start all ranks with torchrun, with "
            "the same --nnodes and --rdzv-endpoint on every machine"
        ) from error
    try:
        yield here
    finally:
        distributed.destroy_process_group()


def _device_type(device: torch.device | str | None) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise DistributedError(
            f"ranks can meet on 'cpu' or 'cuda', not on {kind!r}; initialise the process group first"
        )
    return kind


def _meet(kind: str, here: World, timeout: timedelta) -> None:
    store = _fresh_store(timeout)
    known: dict[str, Any] = {} if store is None else {"store": store, "rank": here.rank, "world_size": here.size}
    if kind == "cpu":
        distributed.init_process_group("gloo", timeout=timeout, **known)
        return
    torch.cuda.set_device(here.local_rank)
    # gloo beside NCCL, so that objects and tensors on the CPU travel too.
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl", timeout=timeout, device_id=torch.device("cuda", here.local_rank), **known
    )


def _fresh_store(timeout: timedelta) -> Any:
    """A part of torchrun's store that no earlier attempt wrote to; None where torch's own way will do.

    torchrun's own store outlives its workers. Read from torch 2.11 to 2.14: restarted ranks can find the addresses of
    lost ones in it, and connect to nobody. On one machine all ranks know the number of restarts; on several they may
    count differently.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    outlives = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if restarts == "0" or not outlives or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = distributed.TCPStore(address, port, is_master=False, timeout=timeout)  # type: ignore[attr-defined]
    return distributed.PrefixStore(f"nhwc/restart/{restarts}", store)  # type: ignore[attr-defined]
