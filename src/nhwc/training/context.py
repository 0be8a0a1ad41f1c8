"""What every part of a run is told: its settings, its device, its place among the ranks, and who wants it to stop."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nhwc import distributed
from nhwc.errors import TrainingError
from nhwc.training import ranks
from nhwc.training.settings import TrainSettings
from nhwc.training.spelling import spelled
from nhwc.training.stopping import StopRequest


@dataclass(frozen=True)
class Context:
    """One rank's view of a run."""

    settings: TrainSettings
    device: torch.device
    world: distributed.World
    stop: StopRequest

    @property
    def sharded(self) -> bool:
        """Whether parameters are spread over ranks, so that every rank has to call the model equally often."""
        return self.settings.fsdp and self.world.size > 1


def require_agreement(world: distributed.World) -> None:
    """Raise TrainingError where a process group exists that torchrun's environment knows nothing of."""
    if ranks.size() not in (1, world.size):
        raise TrainingError(
            f"a process group of {ranks.size()} exists, but RANK, LOCAL_RANK and WORLD_SIZE say {world.size}; start "
            "with torchrun, or set them in each process"
        )


def device_of(settings: TrainSettings, world: distributed.World) -> torch.device:
    """The device of this rank, tried out. Raises TrainingError where it cannot be used."""
    try:
        device = torch.device(settings.device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers; name cpu or cuda")
        if device.type == "cuda" and ":" not in settings.device and world.size > 1:
            device = torch.device("cuda", world.local_rank)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).partition("\n")[0]
        raise TrainingError(f"{spelled('device')} {settings.device!r} cannot be used: {first}") from error
    return device
