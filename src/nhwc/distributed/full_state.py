"""The state of a distributed model and its optimizer as one process would have it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from nhwc.conversion import follow_parameters
from nhwc.distributed.states import States, parameters_by_index, shared_out, tensors_of, whole
from nhwc.distributed.wrappers import has_group, unwrap
from nhwc.errors import DistributedError


def full_state_dict(
    model: nn.Module, optimizer: Optimizer | None = None, *, first_rank_only: bool = False
) -> dict[str, Any]:
    """``{"model": ..., "optimizer": ...}``, the second with ``optimizer`` only: plain state dicts of whole tensors.

    They are copies on the CPU, which load into an unchanged model (``load_state_dict``) and an optimizer over its
    parameters, whatever ``model`` is: fully sharded, inside of DistributedDataParallel or ``torch.compile``, or plain.
    Names have no prefix of a wrapper, weights their usual shape, strides are kept.

    Every rank has to call it where the model is sharded. first_rank_only: the others get an empty dict, and hold no
    more than one whole tensor at a time.

    Raises DistributedError where the optimizer holds parameters that are not the model's.
    """
    core = unwrap(model)
    states = States(core)
    if optimizer is not None:
        states.require_all(optimizer)
    keeps = not first_rank_only or _rank() == 0
    full: dict[str, Any] = {"model": _whole_model(core, keeps)}
    if optimizer is not None:
        full["optimizer"] = _whole_optimizer(optimizer, states, keeps)
    return full if keeps else {}


def load_full_state_dict(model: nn.Module, state: Mapping[str, Any], optimizer: Optimizer | None = None) -> None:
    """Load what ``full_state_dict`` gave, or ``{"model": model.state_dict(), ...}`` of an unchanged model, into a model
    that is sharded over any number of ranks, inside of DistributedDataParallel or plain.

    Every rank passes the whole state and takes its share. State of the optimizer takes the strides of its parameters.

    Raises DistributedError by name where names, shapes or the groups of the optimizer do not fit; nothing is loaded
    then.
    """
    core = unwrap(model)
    states = States(core)
    if "model" not in state or (optimizer is not None and "optimizer" not in state):
        missing = "model" if "model" not in state else "optimizer"
        raise DistributedError(
            f"the state has no {missing!r}, it has {', '.join(map(repr, state)) or 'nothing'}; pass what "
            "full_state_dict gave, on every rank"
        )
    own = core.state_dict()
    require_same_tensors(own, state["model"])
    if optimizer is not None:
        states.require_all(optimizer)
        require_same_groups(optimizer, state["optimizer"]["param_groups"])
    given = state["model"]
    core.load_state_dict({name: _shared(value, own.get(name)) for name, value in given.items()})
    if optimizer is not None:
        load_optimizer(optimizer, state["optimizer"], states)


def load_optimizer(optimizer: Optimizer, packed: Mapping[str, Any], states: States) -> None:
    """Load the whole state of an optimizer, by the index of each parameter."""
    owner = parameters_by_index(optimizer, packed["param_groups"])
    state = {
        index: {
            key: states.stored(owner[index], value) if isinstance(value, torch.Tensor) else value
            for key, value in kept.items()
        }
        for index, kept in packed["state"].items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": packed["param_groups"]})
    follow_parameters(optimizer)


def require_same_tensors(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise by name where a state dict does not fit the model's own."""
    for what, names in (
        ("misses", [name for name in own if name not in given]),
        ("has the unknown", [name for name in given if name not in own]),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise DistributedError(f"the state {what} {names[0]}{more}; it is of another model")
    shapes = tensors_of(dict(own))
    for name, value in tensors_of(dict(given)).items():
        if name in shapes and value.shape != shapes[name].shape:
            raise DistributedError(
                f"{name} is {tuple(value.shape)} in the state and {tuple(shapes[name].shape)} in the model; it is of "
                "another model"
            )


def require_same_groups(optimizer: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Raise where the groups of parameters differ in number or size."""
    own = [len(group["params"]) for group in optimizer.param_groups]
    given = [len(group["params"]) for group in groups]
    if own != given:
        raise DistributedError(
            f"the state is of an optimizer with {given} parameters in its groups, this {type(optimizer).__name__} has "
            f"{own}; make it over the same parameters"
        )


def _whole_model(core: nn.Module, keeps: bool) -> dict[str, Any]:
    first: dict[int, str] = {}
    tied = {}
    for name, tensor in [
        *core.named_parameters(remove_duplicate=False),
        *core.named_buffers(remove_duplicate=False),
    ]:
        tied[name] = first.setdefault(id(tensor), name)
    full: dict[str, Any] = {}
    for name, value in core.state_dict().items():
        twin = tied.get(name, name)
        if twin in full:  # names of one tensor stay names of one tensor
            full[name] = full[twin]
        else:
            gathered = whole(value) if isinstance(value, torch.Tensor) else value
            full[name] = gathered if keeps else None
    return full


def _whole_optimizer(optimizer: Optimizer, states: States, keeps: bool) -> dict[str, Any]:
    packed = optimizer.state_dict()
    owner = parameters_by_index(optimizer, packed["param_groups"])
    state = {}
    for index, kept in packed["state"].items():
        made = {
            key: whole(states.usual(owner[index], value)) if isinstance(value, torch.Tensor) else value
            for key, value in kept.items()
        }
        if keeps:
            state[index] = made
    return {"state": state, "param_groups": packed["param_groups"]}


def _shared(value: object, like: object) -> object:
    both = isinstance(value, torch.Tensor) and isinstance(like, DTensor)
    return shared_out(value, like) if both else value  # type: ignore[arg-type]


def _rank() -> int:
    return torch.distributed.get_rank() if has_group() else 0
