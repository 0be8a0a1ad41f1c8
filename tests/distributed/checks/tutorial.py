"""The models of PyTorch's tutorial on channels last, replicated and sharded: no stride warning, no copied gradient.

Warnings are errors here. Each model is small in its images only.
"""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from distributed.checks.training import Copies
from torch import nn

import nhwc
from nhwc import rules
from nhwc.distributed import World, data_parallel, full_state_dict, fully_shard
from nhwc.recorder import Options, record
from nhwc.suites.tutorial import TUTORIAL

SIZES = {"inception_v3": 96, "alexnet": 64, "squeezenet1_0": 64, "squeezenet1_1": 64}


def build(name: str) -> nn.Module:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return nhwc.convert(torchvision.models.get_model(name, weights=None, **extra))


def images_for(name: str, here: World) -> torch.Tensor:
    torch.manual_seed(here.rank)
    size = SIZES.get(name, 32)
    return torch.randn(2, 3, size, size).to(memory_format=torch.channels_last)


def replicated(name: str, here: World) -> None:
    wrapped = data_parallel(build(name))
    images = images_for(name, here)
    for _ in range(2):  # torch builds its buckets anew behind the first step
        wrapped.zero_grad()
        wrapped(images).sum().backward()
    for parameter in wrapped.parameters():
        assert parameter.grad.stride() == parameter.stride()
    trace = record(wrapped, images, options=Options(train=True, inner=False, libraries=False))
    assert len(trace.ranks) == here.size
    assert [finding.message for finding in rules.find(trace, ["NH301", "NH402"])] == []


def sharded(name: str, here: World) -> None:
    model = build(name)
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    weights = {tuple(parameter.shape) for parameter in model.parameters() if parameter.dim() == 4}
    fully_shard(model)
    # shufflenet's units hand out views; nothing works on them in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    images = images_for(name, here)
    with Copies() as copies:
        model(images).sum().backward()
    stored = {(shape[0], *shape[2:], shape[1]) for shape in weights}
    copied = [copy for copy in copies.seen if any(f" {shape} " in copy for shape in weights | stored)]
    assert copied == []
    state = full_state_dict(model, first_rank_only=True)
    if here.first:
        assert {key: value.shape for key, value in state["model"].items()} == shapes


def check_all_of_them(here: World) -> None:
    torch.set_warn_always(True)
    for each in TUTORIAL.models:
        for way in (replicated, sharded):
            try:
                way(each.name, here)
            except BaseException as error:
                error.add_note(f"{each.name}, {way.__name__}")
                raise
            gc.collect()
