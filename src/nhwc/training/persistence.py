"""What a checkpoint holds of a run, gathered from all ranks and put back on all ranks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from nhwc import distributed
from nhwc.errors import CheckpointError, NhwcError
from nhwc.training import ranks
from nhwc.training.checkpoints import Checkpoints
from nhwc.training.comparison import hint_on_model, note_on_classes, note_on_settings
from nhwc.training.context import Context
from nhwc.training.finding import job
from nhwc.training.optimizers import apply_settings
from nhwc.training.precision import Precision
from nhwc.training.preparation import Prepared
from nhwc.training.progress import EpochNumbers, Place, plain, require_numbers
from nhwc.training.randomness import random_state, seed_everything, set_random_state
from nhwc.training.records import EvaluationRecord
from nhwc.training.spelling import spelled


class Memory:
    """Saves and restores the parts of a run.

    loader: has state_dict and load_state_dict. order: what decides which images come when; a run can only go on in the
    middle of an epoch where it is the same. names: of the classes.
    """

    def __init__(
        self,
        prepared: Prepared,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        loader: Any,
        numbers: EpochNumbers,
        context: Context,
        order: dict[str, int],
        names: tuple[str, ...],
    ) -> None:
        self._prepared = prepared
        self._optimizer = optimizer
        self._precision = precision
        self._loader = loader
        self._numbers = numbers
        self._settings, self._device, self._world = context.settings, context.device, context.world
        self._order, self._names = order, names
        self.checkpoints = None if self._settings.folder is None else Checkpoints(self._settings.folder)

    def save(self, place: Place, evaluation: EvaluationRecord | None, best_top1: float | None, *, best: bool) -> None:
        """Write a checkpoint; all ranks call it. Raises CheckpointError on all of them where rank 0 cannot.

        Raises TrainingError, also without a folder, where losses or weights are no numbers: the last step's weights are
        in no loss yet.
        """
        self._numbers.require_finite(place, self.kept())
        require_numbers(self._prepared.core, place, self.kept())
        if self.checkpoints is None:
            return
        average = self._prepared.average
        state = {
            "settings": self._settings.as_plain(),
            "classes": list(self._names),
            "place": plain(place),
            "order": self._order,
            "training": distributed.full_state_dict(self._prepared.wrapped, self._optimizer, first_rank_only=True),
            "average": None if average is None else distributed.full_state_dict(average.model, first_rank_only=True),
            "scaler": self._precision.state_dict(),
            "loader": self._loader.state_dict(),
            "numbers": self._numbers.shared_state(),
            "ranks": ranks.everyones({"random": random_state(self._device), "sums": self._numbers.own_state()}),
            "evaluation": None if evaluation is None else asdict(evaluation),
            "best_top1": best_top1,
            "job": job(),
            "memory_format": self._prepared.memory_format,
        }
        problem = ""
        if self._world.rank == 0:
            try:
                self.checkpoints.save(state, best=best)
            except CheckpointError as error:
                problem = str(error)
        problem = ranks.firsts(problem)
        if problem:
            raise CheckpointError(problem)

    def kept(self) -> bool:
        """Whether there is a checkpoint of the run."""
        return self.checkpoints is not None and self.checkpoints.exist()

    def restore(self, state: dict[str, Any]) -> tuple[Place, list[str]]:
        """Put everything back on this rank; returns the place, and sentences on what is not as it was.

        Raises CheckpointError where the checkpoint is of another model or, in the middle of an epoch, of other data.
        """
        place, before = Place(**state["place"]), state["settings"]
        notes = note_on_settings(before, self._settings) + note_on_classes(state.get("classes"), self._names)
        if self._settings.evaluate_only:
            self._load(state, {**state["training"], **(state["average"] or {})}, None)
            return place, notes
        self._require_order(state["order"], place)
        if before["optimizer"] != self._settings.optimizer:
            raise CheckpointError(
                f"the checkpoint was written with {before['optimizer']}, now {self._settings.optimizer}; give "
                f"{spelled('optimizer')} {before['optimizer']}, or begin in another folder"
            )
        self._load(state, state["training"], self._optimizer)
        apply_settings(self._optimizer, self._settings)
        self._precision.load_state_dict(state["scaler"])
        if place.step:
            self._loader.load_state_dict(state["loader"])
        return place, notes + self._restore_own(state, place)

    def _load(self, state: dict[str, Any], weights: dict[str, Any], optimizer: torch.optim.Optimizer | None) -> None:
        average = self._prepared.average
        try:
            distributed.load_full_state_dict(self._prepared.wrapped, weights, optimizer)
            if average is not None:
                distributed.load_full_state_dict(average.model, state["average"] or state["training"])
        except (NhwcError, RuntimeError, ValueError, KeyError) as error:
            first = str(error).strip().partition("\n")[0]
            hint = hint_on_model(state["settings"], state.get("classes"), self._settings, len(self._names))
            of = "this model" if optimizer is None else "this model and optimizer"
            raise CheckpointError(f"the checkpoint is not of {of}: {first}{hint}") from error

    def _require_order(self, order: dict[str, int], place: Place) -> None:
        other = [
            f"{name} {order[name]}, now {self._order[name]}" for name in self._order if order[name] != self._order[name]
        ]
        if other and place.step:
            raise CheckpointError(
                f"the checkpoint is from the middle of epoch {place.epoch} of a run with {', '.join(other)}; "
                "go on with the same data, seed and images per step"
            )

    def _restore_own(self, state: dict[str, Any], place: Place) -> list[str]:
        each, rank = state["ranks"], self._world.rank
        if len(each) == self._world.size:
            set_random_state(each[rank]["random"], self._device)
            self._numbers.load(state["numbers"], each[rank]["sums"])
            return []
        seed_everything(hash((self._settings.seed, place.update, rank)) % 2**63)
        own = sum(one["sums"] for one in each) if rank == 0 else torch.zeros_like(each[0]["sums"])
        self._numbers.load(state["numbers"], own)
        return [f"the checkpoint is from {len(each)} processes, now {self._world.size}: random numbers start afresh"]
