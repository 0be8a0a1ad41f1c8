"""What a process learns from torchrun's environment, and how ranks fail to meet."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed

from nhwc.distributed import World, accumulating, data_parallel, fully_shard, joined, require_same_layouts, world
from nhwc.errors import DistributedError


@pytest.fixture(autouse=True)
def no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def tell(monkeypatch: pytest.MonkeyPatch, rank: object, local_rank: object, size: object) -> None:
    for name, value in (("RANK", rank), ("LOCAL_RANK", local_rank), ("WORLD_SIZE", size)):
        if value is not None:
            monkeypatch.setenv(name, str(value))


def test_one_process_where_nothing_is_told() -> None:
    assert world() == World(0, 0, 1)
    assert world().first


def test_what_torchrun_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, 5, 1, 8)
    assert world() == World(rank=5, local_rank=1, size=8)
    assert not world().first


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ((1, None, 2), "the environment has RANK=1, WORLD_SIZE=2, but RANK, LOCAL_RANK and WORLD_SIZE belong together"),
        (("one", 0, 2), "each an integer; start with torchrun, or unset them"),
        ((0, 0, -1), "each an integer"),
        ((2, 0, 2), "RANK=2, LOCAL_RANK=0 and WORLD_SIZE=2 contradict each other"),
        ((0, 1, 2), "contradict each other; start with torchrun"),
        ((0, 0, 0), "contradict each other"),
    ],
)
def test_an_environment_that_makes_no_sense(
    told: tuple[object, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, *told)
    with pytest.raises(DistributedError, match=message):
        world()


@pytest.mark.parametrize("told", [(None, None, None), (0, 0, 1)])
def test_one_process_joins_nobody(told: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, *told)
    with joined() as here:
        assert here == World()
        assert not torch.distributed.is_initialized()


def test_ranks_that_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, 1, 1, 2)
    with pytest.raises(DistributedError, match=r"rank 1 of 2 did not meet the others .*MASTER_ADDR"), joined("cpu"):
        pass
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    with pytest.raises(DistributedError, match="rank 1 of 2 did not meet the others"), joined("cpu", timeout_s=1.0):
        pass
    assert not torch.distributed.is_initialized()


def test_devices_that_ranks_cannot_meet_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, 0, 0, 2)
    with pytest.raises(DistributedError, match="on 'cpu' or 'cuda', not on 'meta'"), joined("meta"):
        pass
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(DistributedError, match="local rank 0 has no GPU of its own, 0 are there"), joined("cuda"):
        pass


@pytest.mark.parametrize("verb", [data_parallel, fully_shard, require_same_layouts])
def test_verbs_that_need_a_process_group(verb: object) -> None:
    with pytest.raises(DistributedError, match=r"needs a process group: start with torchrun, and call it inside of"):
        verb(torch.nn.Linear(2, 2))


def test_accumulating_on_one_process_is_plain() -> None:
    model = torch.nn.Linear(2, 1)
    with accumulating(model):
        model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
