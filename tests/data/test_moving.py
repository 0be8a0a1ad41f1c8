"""Batches on their way to the device, and, with stand-ins for CUDA's streams, one ahead of what is handed out."""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import pytest
import torch

import nhwc
from nhwc.data import Loader, Synthetic, normalize
from nhwc.data.moving import ahead, each_tensor, to_device

Pair = collections.namedtuple("Pair", "first second")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_every_tensor_is_changed_and_nothing_else() -> None:
    parts = {"a": [torch.ones(1), "text"], "b": Pair(torch.ones(2), (3, torch.ones(3))), "c": None}
    found = each_tensor(parts, lambda tensor: tensor * 2)
    assert found["a"][0].tolist() == [2]
    assert found["a"][1] == "text"
    assert isinstance(found["b"], Pair)
    assert found["b"].first.tolist() == [2, 2]
    assert found["b"].second[0] == 3
    assert type(found["b"].second) is tuple
    assert found["c"] is None


def test_strides_stay_as_they_are() -> None:
    for shape in ((2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1)):
        batch = torch.zeros(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
        assert to_device(batch, torch.device("meta")).stride() == batch.stride()


class Streams:
    """Stands in for torch.cuda's streams and notes what happens on which."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.on = "caller"
        self.events = 0
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: self)
        monkeypatch.setattr(torch.cuda, "stream", self._within)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)
        monkeypatch.setattr(
            torch.Tensor, "record_stream", lambda tensor, stream: self.log.append(f"kept {int(tensor)}")
        )

    @contextlib.contextmanager
    def _within(self, stream: Any) -> Any:
        self.on = "side"
        yield
        self.on = "caller"

    def record_event(self) -> int:
        self.events += 1
        return self.events

    def wait_event(self, event: int) -> None:
        assert self.on == "caller"
        self.log.append(f"waited for {event}")


def test_one_batch_is_made_ahead_on_a_stream_beside_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)

    def prepare(number: int) -> list[torch.Tensor]:
        streams.log.append(f"made {number} on {streams.on}")
        return [torch.tensor(number)]

    for (number,) in ahead([1, 2, 3], prepare, CUDA):
        streams.log.append(f"used {int(number)} on {streams.on}")
    assert streams.log == [
        "made 1 on side",
        "made 2 on side",
        "waited for 1",
        "kept 1",
        "used 1 on caller",
        "made 3 on side",
        "waited for 2",
        "kept 2",
        "used 2 on caller",
        "waited for 3",
        "kept 3",
        "used 3 on caller",
    ]
    assert list(ahead([], prepare, CUDA)) == []


def test_elsewhere_a_batch_is_made_when_it_is_asked_for() -> None:
    made: list[int] = []
    coming = ahead([1, 2], made.append, CPU)
    next(coming)
    assert made == [1]


def test_what_was_made_ahead_does_not_count_as_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Streams(monkeypatch)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    loader = Loader(Synthetic(8, (3, 4, 4), 2), 2)
    loader._source._pin = True
    loader.device = CUDA
    monkeypatch.setattr("nhwc.data.loader.to_device", lambda parts, device: parts)
    iterator = iter(loader)
    assert loader.state_dict()["position"] == 0
    next(iterator)
    next(iterator)
    assert loader.state_dict()["position"] == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("workers", [0, 2])
def test_on_a_gpu(workers: int) -> None:
    dataset = Synthetic(40, (3, 64, 64), 5)
    on_cpu = list(Loader(dataset, 8, shuffle=True))
    loader = Loader(dataset, 8, shuffle=True, workers=workers, device="cuda", mean=0.5, std=0.25)
    for (images, labels), (wanted, expected) in zip(loader, on_cpu, strict=True):
        assert images.is_cuda
        assert images.stride() == nhwc.strides_for(images.shape, "channels_last")
        torch.testing.assert_close(images.cpu(), normalize(wanted, 0.5, 0.25))
        assert torch.equal(labels.cpu(), expected)
    loader.close()
