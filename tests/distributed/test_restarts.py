"""Ranks that torchrun started anew meet each other, not what lost ones left in its store."""

from __future__ import annotations

from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from nhwc.distributed.ranks import _fresh_store

SOON = timedelta(seconds=5)


@pytest.fixture
def torchruns(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """The store that torchrun keeps over restarts, and what it tells a rank of the first of them."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**told, "TORCHELASTIC_RESTART_COUNT": "1", "GROUP_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    store.set("an address", "of a lost rank")
    return store


def test_a_restarted_rank_sees_its_own_attempt_alone(torchruns: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _fresh_store(SOON)
    assert first is not None
    assert not first.check(["an address"])
    first.set("an address", "of a rank that is lost again")
    other = _fresh_store(SOON)
    assert other is not None
    assert other.check(["an address"])
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    second = _fresh_store(SOON)
    assert second is not None
    assert not second.check(["an address"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCHELASTIC_RESTART_COUNT", "0"), ("GROUP_WORLD_SIZE", "2"), ("TORCHELASTIC_USE_AGENT_STORE", "False")],
)
@pytest.mark.usefixtures("torchruns")
def test_otherwise_torchs_own_way_is_taken(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert _fresh_store(SOON) is None
