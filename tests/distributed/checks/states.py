"""State dicts of distributed models load into unchanged ones, and back, whole and in shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from distributed.checks.models import adam, batch, network, same, sgd, share, train
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.tensor import DTensor

import nhwc
from nhwc.distributed import (
    World,
    data_parallel,
    full_state_dict,
    fully_shard,
    load_full_state_dict,
    load_sharded,
    save_sharded,
)
from nhwc.errors import DistributedError

FOLDER = Path(os.environ.get("FOLDER", ""))


def replicated() -> nn.Module:
    return data_parallel(nhwc.convert(network()))


def sharded() -> nn.Module:
    return fully_shard(nhwc.convert(network()), blocks=["0", "5"])


def plain() -> nn.Module:
    return nhwc.convert(network())


def check_names_and_shapes_are_the_usual_ones(here: World) -> None:
    model = sharded()
    usual = network().state_dict()
    state = model.state_dict()
    assert {name: value.shape for name, value in state.items()} == {name: value.shape for name, value in usual.items()}
    assert isinstance(state["0.weight"], DTensor)
    same(full_state_dict(model)["model"], plain().state_dict())


def check_every_kind_into_every_kind(here: World) -> None:
    """Trained two steps as one, and two more as another: the same as four steps at once."""
    whole = batch()
    model = plain().eval()  # batch norm of a share is not that of the whole
    optimizer = adam(model)
    train(model, whole, optimizer, steps=2)
    middle = full_state_dict(model, optimizer)
    train(model, whole, optimizer, steps=2)
    end = full_state_dict(model, optimizer)
    for build in (replicated, sharded):
        for fused in (False, True):
            other = build().eval()
            own = adam(other, fused)
            load_full_state_dict(other, middle, own)
            same(full_state_dict(other, own)["model"], middle["model"])
            train(other, share(whole, here), own, steps=2)
            found = full_state_dict(other, own)
            same(found["model"], end["model"])
            same(found["optimizer"]["state"], end["optimizer"]["state"])
            unchanged = network().eval()
            continued = adam(unchanged)
            unchanged.load_state_dict(found["model"])
            continued.load_state_dict(found["optimizer"])
            train(unchanged, whole, continued, steps=1)


def check_a_state_is_a_copy(here: World) -> None:
    for build in (plain, replicated, sharded):
        model = build()
        before = full_state_dict(model)
        wanted = {name: value.clone() for name, value in before["model"].items()}
        train(model, share(batch(), here), sgd(model), steps=1)
        same(before["model"], wanted)


def check_the_first_rank_alone(here: World) -> None:
    model = sharded()
    optimizer = adam(model)
    train(model, share(batch(), here), optimizer, steps=1)
    full = full_state_dict(model, optimizer)
    alone = full_state_dict(model, optimizer, first_rank_only=True)
    same(alone, full if here.first else {})


def check_what_does_not_fit_is_refused_and_not_loaded(here: World) -> None:
    for build in (plain, replicated, sharded):
        model = build()
        optimizer = adam(model)
        good = full_state_dict(model, optimizer)
        for wrong, message in (
            ({}, "the state has no 'model', it has nothing"),
            ({"model": good["model"]}, "the state has no 'optimizer', it has 'model'"),
            ({**good, "model": {}}, r"the state misses 0\.weight and \d+ more"),
            ({**good, "model": {**good["model"], "x": torch.ones(1)}}, "the state has the unknown x; it is of another"),
            (
                {**good, "model": {**good["model"], "0.weight": torch.ones(8, 3, 3, 1)}},
                r"0\.weight is \(8, 3, 3, 1\) in the state and \(8, 3, 3, 3\) in the model",
            ),
            (
                {**good, "optimizer": {"state": {}, "param_groups": [{"params": [0]}]}},
                r"an optimizer with \[1\] parameters in its groups, this AdamW has \[\d+\]",
            ),
        ):
            with pytest.raises(DistributedError, match=message):
                load_full_state_dict(model, wrong, optimizer)
        same(full_state_dict(model, optimizer), good)
    foreign = adam(network())
    shards = fully_shard(nhwc.convert(network()))
    with pytest.raises(DistributedError, match="make the optimizer after fully_shard"):
        full_state_dict(shards, foreign)


def check_torchs_own_verbs_on_a_sharded_model(here: World) -> None:
    model = sharded()
    wanted = full_state_dict(model)["model"]
    options = StateDictOptions(full_state_dict=True)
    found = get_model_state_dict(model, options=options)
    assert {name: value.shape for name, value in found.items()} == {name: v.shape for name, v in wanted.items()}
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)
    other = {name: value + 1 for name, value in wanted.items()}
    set_model_state_dict(model, dict(other), options=options)
    same(full_state_dict(model)["model"], other)
    for assign in (False, True):
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        # Assigned values are the parameters from then on; a file may hold them in contiguous format.
        model.load_state_dict({name: value.clone().contiguous() for name, value in kept.items()}, assign=assign)
        same(full_state_dict(model)["model"], other)
        train(model, share(batch(), here), sgd(model), steps=1)
        model.load_state_dict(kept)
        same(full_state_dict(model)["model"], other)


def check_shares_are_saved(here: World) -> None:
    """Another run loads these over another number of ranks."""
    whole = batch()
    model = sharded().eval()
    optimizer = adam(model)
    train(model, share(whole, here), optimizer, steps=2)
    save_sharded(FOLDER / "saved", model, optimizer)
    torch.save(full_state_dict(model, optimizer), FOLDER / f"whole_{here.rank}.pt")
    load_and_go_on(here, FOLDER, build=sharded)
    load_and_go_on(here, FOLDER, build=replicated)
    with pytest.raises(DistributedError, match=r"saved exists already; save to a new folder, and remove the old one"):
        save_sharded(FOLDER / "saved", model)
    (FOLDER / "again.partial").mkdir(exist_ok=True)  # what a killed run leaves
    save_sharded(FOLDER / "again", model)
    assert not (FOLDER / "again.partial").exists()
    with pytest.raises(DistributedError, match="again holds no optimizer; load the model alone"):
        load_sharded(FOLDER / "again", model, optimizer)
    load_sharded(FOLDER / "again", model)


def load_and_go_on(here: World, folder: Path, build: object) -> None:
    """A run that loads the shares goes on as one that loads the whole state."""
    whole = batch()
    wanted_model, model = plain().eval(), build().eval()
    wanted_optimizer, optimizer = adam(wanted_model), adam(model, fused=True)
    optimizer.param_groups[0]["lr"] = 99.0
    full = torch.load(folder / "whole_0.pt", weights_only=True)
    load_full_state_dict(wanted_model, full, wanted_optimizer)
    load_sharded(folder / "saved", model, optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.01
    same(full_state_dict(model, optimizer)["model"], full["model"])
    same(full_state_dict(model, optimizer)["optimizer"]["state"], full["optimizer"]["state"])
    train(wanted_model, whole, wanted_optimizer, steps=2)
    train(model, share(whole, here), optimizer, steps=2)
    same(full_state_dict(model)["model"], full_state_dict(wanted_model)["model"])


def check_folders_that_do_not_fit(here: World) -> None:
    model = sharded()
    optimizer = adam(model)
    folder = FOLDER / "fits"
    save_sharded(folder, model, optimizer)
    with pytest.raises(DistributedError, match=r"fits misses 0\.0\.bias and \d+ more; it is of another model"):
        load_sharded(folder, nn.Sequential(network()))
    other = network()
    other[0] = nn.Conv2d(3, 8, 5, padding=2).double()
    with pytest.raises(DistributedError, match=r"0\.weight is \(8, 3, 3, 3\) in .* and \(8, 3, 5, 5\) in the model"):
        load_sharded(folder, other)
    split = torch.optim.AdamW([{"params": list(model[0].parameters())}, {"params": list(model[4].parameters())}])
    with pytest.raises(DistributedError, match="an optimizer with other groups of parameters"):
        load_sharded(folder, model, split)
    with pytest.raises(DistributedError, match="nowhere holds no checkpoint of save_sharded"):
        load_sharded(FOLDER / "nowhere", model)
    dist.barrier()
    if here.first:
        (folder / ".metadata").write_bytes(b"nonsense")
    dist.barrier()
    with pytest.raises(DistributedError, match="fits is damaged, its index cannot be read"):
        load_sharded(folder, model)
    if here.first:
        (FOLDER / "file").write_text("in the way", encoding="utf-8")
    dist.barrier()
    with pytest.raises(DistributedError, match="file"):
        save_sharded(FOLDER / "file" / "below", model)
