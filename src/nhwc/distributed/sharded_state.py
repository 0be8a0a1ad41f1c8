"""Checkpoints that every rank writes and reads its own share of, through torch.distributed.checkpoint.

Tensors have the usual names and shapes in them, so that a checkpoint loads over another number of ranks, and into a
model that is replicated or plain. State of the optimizer goes by the names of the parameters.
"""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from nhwc.distributed.full_state import load_optimizer
from nhwc.distributed.states import States, parameters_by_index
from nhwc.distributed.wrappers import has_group, unwrap
from nhwc.errors import DistributedError

MODEL, STATE, GROUPS = "model", "optimizer state", "optimizer groups"


def save_sharded(folder: str | Path, model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Save the model, and the optimizer with its state, to a new folder, each rank its share; every rank calls it.

    The folder, one that all ranks see, is there when everything is written, and not before: until then it has the
    ending ".partial".

    Raises DistributedError, on all ranks, where the folder exists, cannot be written, or the optimizer holds parameters
    that are not the model's.
    """
    target = Path(folder)
    partial = target.with_name(target.name + ".partial")
    core = unwrap(model)
    states = States(core)
    state: dict[str, Any] = {MODEL: core.state_dict()}
    if optimizer is not None:
        states.require_all(optimizer)
        state |= _optimizer_by_name(optimizer, states)
    _on_first_rank(lambda: _make_room(target, partial))
    try:
        with _quiet():
            save(state, checkpoint_id=partial)
    except CheckpointException as error:
        _on_first_rank(lambda: shutil.rmtree(partial, ignore_errors=True))
        reasons = "; ".join(str(reason[0]) for reason in error.failures.values())
        raise DistributedError(f"{target} could not be written: {reasons}") from error
    _on_first_rank(lambda: partial.rename(target))


def load_sharded(folder: str | Path, model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Load what ``save_sharded`` wrote, over any number of ranks, into a sharded, replicated or plain model.

    Every rank calls it. The values are read beside the model, and put into it when all of them are there.

    The format is torch's own, whose index is a pickle: load only what you trust.

    Raises DistributedError where the folder holds no checkpoint, is damaged, or is of another model or optimizer;
    nothing is loaded then.
    """
    source = Path(folder)
    core = unwrap(model)
    states = States(core)
    metadata = _metadata(source)
    own = core.state_dict()
    _require_same(source, metadata, own)
    state: dict[str, Any] = {MODEL: {name: _blank(value) for name, value in own.items()}}
    if optimizer is not None:
        states.require_all(optimizer)
        if GROUPS not in metadata.state_dict_metadata:
            raise DistributedError(f"{source} holds no optimizer; load the model alone")
        state |= {STATE: _blank_state(metadata, optimizer, states), GROUPS: None}
    try:
        with _quiet():
            load(state, checkpoint_id=source)
    except CheckpointException as error:
        reasons = "; ".join(str(reason[0]) for reason in error.failures.values())
        raise DistributedError(f"{source} could not be read: {reasons}") from error
    packed = None if optimizer is None else _optimizer_by_index(source, optimizer, states, state)
    core.load_state_dict(state[MODEL])
    if optimizer is not None and packed is not None:
        load_optimizer(optimizer, packed, states)


def _optimizer_by_name(optimizer: Optimizer, states: States) -> dict[str, Any]:
    packed = optimizer.state_dict()
    owner = parameters_by_index(optimizer, packed["param_groups"])
    names = {index: states.names[id(parameter)] for index, parameter in owner.items()}
    return {
        STATE: {
            names[index]: {
                key: states.usual(owner[index], value.detach()) if isinstance(value, torch.Tensor) else value
                for key, value in kept.items()
            }
            for index, kept in packed["state"].items()
        },
        # One value of bytes: torch would take the list apart, and forget which values were in it.
        GROUPS: _packed([{**group, "params": [names[i] for i in group["params"]]} for group in packed["param_groups"]]),
    }


def _optimizer_by_index(source: Path, optimizer: Optimizer, states: States, state: dict[str, Any]) -> dict[str, Any]:
    own = [[states.names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]
    groups: list[dict[str, Any]] = torch.load(io.BytesIO(state[GROUPS]), weights_only=True)
    given = [group["params"] for group in groups]
    if [sorted(group) for group in own] != [sorted(group) for group in given]:
        raise DistributedError(
            f"{source} is of an optimizer with other groups of parameters; make it over the same ones"
        )
    indices = {name: index for index, name in enumerate(name for group in own for name in group)}
    return {
        "state": {indices[name]: kept for name, kept in state[STATE].items()},
        "param_groups": [
            {**group, "params": [indices[name] for name in names]} for group, names in zip(groups, own, strict=True)
        ],
    }


def _packed(groups: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    torch.save(groups, buffer)
    return buffer.getvalue()


def _blank_state(metadata: Metadata, optimizer: Optimizer, states: States) -> dict[str, Any]:
    """By name of each parameter what the checkpoint holds for it, to be filled."""
    parameters = {
        states.names[id(parameter)]: parameter for group in optimizer.param_groups for parameter in group["params"]
    }
    blank: dict[str, dict[str, Any]] = {}
    for path, stored in _stored(metadata).items():
        if path[0] == STATE and path[1] in parameters:
            parameter = parameters[path[1]]
            blank.setdefault(path[1], {})[path[2]] = _blank_entry(stored, parameter, states)
    return blank


def _blank_entry(stored: object, parameter: torch.Tensor, states: States) -> torch.Tensor | None:
    if not isinstance(stored, TensorStorageMetadata):
        return None
    like = states.usual(parameter, parameter.detach())
    if stored.size == like.shape:
        return torch.empty_like(like, dtype=stored.properties.dtype)
    return torch.empty(stored.size, dtype=stored.properties.dtype)


def _blank(value: object) -> object:
    return torch.empty_like(value) if isinstance(value, torch.Tensor) else None


def _stored(metadata: Metadata) -> dict[tuple[Any, ...], Any]:
    """What a checkpoint holds, by its path: (part, name) of the model, (part, name, key) of the optimizer."""
    paths = metadata.planner_data or {}
    return {tuple(paths.get(name, (name,))): stored for name, stored in metadata.state_dict_metadata.items()}


def _metadata(source: Path) -> Metadata:
    if not (source / ".metadata").is_file():
        raise DistributedError(f"{source} holds no checkpoint of save_sharded; pass the folder that it wrote")
    try:
        metadata: Metadata = FileSystemReader(source).read_metadata()
    except Exception as error:
        raise DistributedError(f"{source} is damaged, its index cannot be read ({error}); load another one") from error
    return metadata


def _require_same(source: Path, metadata: Metadata, own: dict[str, Any]) -> None:
    given = {path[1]: stored for path, stored in _stored(metadata).items() if path[0] == MODEL}
    for what, names in (("misses", own.keys() - given.keys()), ("has the unknown", given.keys() - own.keys())):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise DistributedError(f"{source} {what} {min(names)}{more}; it is of another model")
    for name, stored in given.items():
        value = own[name]
        if isinstance(value, torch.Tensor) and getattr(stored, "size", None) != value.shape:
            raise DistributedError(
                f"{name} is {tuple(stored.size)} in {source} and {tuple(value.shape)} in the model; it is of another "
                "model"
            )


def _make_room(target: Path, partial: Path) -> None:
    if target.exists():
        raise FileExistsError(f"{target} exists already; save to a new folder, and remove the old one afterwards")
    target.parent.mkdir(parents=True, exist_ok=True)
    if partial.exists():  # left by a run that was killed
        shutil.rmtree(partial)


def _on_first_rank(action: Callable[[], object]) -> None:
    """Do something on rank 0 while the others wait; where it fails, all of them raise."""
    failed: list[str | None] = [None]
    joined = has_group()
    if not joined or distributed.get_rank() == 0:
        try:
            action()
        except OSError as error:
            failed = [str(error)]
    if joined:
        distributed.broadcast_object_list(failed)
    if failed[0] is not None:
        raise DistributedError(failed[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that one process is one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield
