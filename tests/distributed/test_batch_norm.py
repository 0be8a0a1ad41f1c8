"""What sync_batch_norm changes in a model, and what it refuses; its numbers are checked on several ranks."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from nhwc.distributed import sync_batch_norm
from nhwc.errors import DistributedError


class Own(nn.BatchNorm2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


def test_layers_stay_the_objects_they_are() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(3)), nn.BatchNorm3d(3), nn.GroupNorm(1, 3))
    before = [*model.modules(), *model.parameters(), *model.buffers()]
    names = list(model.state_dict())
    assert sync_batch_norm(model) is model
    assert all(a is b for a, b in zip(before, [*model.modules(), *model.parameters(), *model.buffers()], strict=True))
    assert list(model.state_dict()) == names
    kinds = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]
    layers = [model[0], model[1][0], model[2]]
    assert all(isinstance(layer, kind) and type(layer) is not kind for layer, kind in zip(layers, kinds, strict=True))
    assert type(model[3]) is nn.GroupNorm
    held = [type(module) for module in model.modules()]
    assert [type(module) for module in sync_batch_norm(model).modules()] == held


def test_one_process_works_as_before() -> None:
    images = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    one, other = nn.BatchNorm2d(3), sync_batch_norm(nn.BatchNorm2d(3))
    for layer in (other, copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        torch.testing.assert_close(layer(images), nn.BatchNorm2d(3)(images), rtol=0, atol=0)
    one(images)
    other.eval()
    one.eval()
    torch.testing.assert_close(other(images), one(images), rtol=0, atol=0)
    own = copy.deepcopy(sync_batch_norm(Own(3)))
    assert isinstance(own, Own)
    torch.testing.assert_close(own(images), Own(3)(images), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.LazyBatchNorm2d(), r"1 \(LazyBatchNorm2d\) is not initialized yet; run the model once first"),
        (nn.SyncBatchNorm(3), r"1 \(SyncBatchNorm\) is torch's own; pass the model before it was converted"),
    ],
)
def test_what_is_refused_changes_nothing(layer: nn.Module, message: str) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), layer)
    with pytest.raises(DistributedError, match=message):
        sync_batch_norm(model)
    assert type(model[0]) is nn.BatchNorm2d


def test_a_layer_over_a_group_of_its_own_is_not_pickled() -> None:
    layer = sync_batch_norm(nn.BatchNorm2d(3), group=object())
    assert copy.deepcopy(layer).held is layer.held
    with pytest.raises(DistributedError, match=r"cannot be pickled; save model\.state_dict\(\)"):
        pickle.dumps(layer)
