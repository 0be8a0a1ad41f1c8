"""Batch norm over all ranks computes what one process computes on the whole batch, in the same memory format."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from distributed.checks.models import batch, network, same, share
from torch import nn

from nhwc.distributed import World, sync_batch_norm
from nhwc.errors import DistributedError

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
SHAPES = {
    nn.BatchNorm1d: [(9, 5), (9, 5, 7)],
    nn.BatchNorm2d: [(9, 5, 4, 3)],
    nn.BatchNorm3d: [(9, 5, 2, 3, 4)],
}


class Own(nn.BatchNorm2d):
    """As the layers that put an activation behind the norm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


class Alone(nn.BatchNorm2d):
    """It does not ask torch for batch norm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean((0, 2, 3), keepdim=True)) * self.weight.view(-1, 1, 1)


def part_of(here: World, whole: int) -> slice:
    """Uneven shares; the last rank of four has none."""
    borders = {2: [0, 2, whole], 4: [0, 2, 3, whole, whole]}[here.size]
    return slice(borders[here.rank], borders[here.rank + 1])


def compare(here: World, kind: type[nn.Module], shape: tuple[int, ...], dtype: torch.dtype, **options: Any) -> None:
    tolerance = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}[dtype]
    torch.manual_seed(0)
    images = (torch.randn(shape) * 3 + 10).to(dtype)
    gradient = torch.randn(shape).to(dtype)
    if len(shape) in LAST:
        images = images.to(memory_format=LAST[len(shape)])
    one = kind(5, **options).to(torch.float64 if dtype is torch.float64 else torch.float32)
    for parameter in one.parameters():
        nn.init.uniform_(parameter)
    many = sync_batch_norm(copy.deepcopy(one))
    wanted_in = images.clone().requires_grad_()
    wanted = one(wanted_in)
    wanted.backward(gradient)
    part = part_of(here, shape[0])
    found_in = images[part].clone().requires_grad_()
    passed: list[torch.Tensor] = []
    found_in.register_hook(passed.append)  # before it is brought to the strides of its leaf
    found = many(found_in)
    found.backward(gradient[part])
    assert found.dtype is dtype
    torch.testing.assert_close(found, wanted[part], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found_in.grad, wanted_in.grad[part], rtol=tolerance, atol=tolerance)
    if len(shape) in LAST and found.numel():
        assert found.is_contiguous(memory_format=LAST[len(shape)])
        assert passed[0].is_contiguous(memory_format=LAST[len(shape)])
    for name, buffer in one.named_buffers():
        torch.testing.assert_close(many.get_buffer(name), buffer, rtol=1e-5, atol=1e-5)
    for name, parameter in one.named_parameters():
        dist.all_reduce(many.get_parameter(name).grad)
        torch.testing.assert_close(
            many.get_parameter(name).grad, parameter.grad, rtol=max(tolerance, 1e-4), atol=max(tolerance, 1e-4)
        )


def check_one_process_on_the_whole_batch(here: World) -> None:
    for kind, shapes in SHAPES.items():
        for shape in shapes:
            for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}):
                compare(here, kind, shape, torch.float64, **options)


def check_classes_with_a_forward_of_their_own(here: World) -> None:
    for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}):
        compare(here, Own, (9, 5, 4, 3), torch.float64, **options)
    with pytest.raises(DistributedError, match=r"the forward of Alone does not call torch\.nn\.functional\.batch_norm"):
        sync_batch_norm(Alone(3))(torch.ones(2, 3, 4, 4))


def check_timms_layers_with_an_activation(here: World) -> None:
    layers = pytest.importorskip("timm.layers")
    torch.manual_seed(0)
    images = torch.randn(8, 4, 6, 6).to(memory_format=torch.channels_last)
    one, many = layers.BatchNormAct2d(4), sync_batch_norm(layers.BatchNormAct2d(4))
    wanted, found = one(images), many(images[here.rank :: here.size])
    torch.testing.assert_close(found, wanted[here.rank :: here.size])
    torch.testing.assert_close(many.running_var, one.running_var)


def check_half_and_single_precision(here: World) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        compare(here, nn.BatchNorm2d, (9, 5, 4, 3), dtype)


def check_means_that_lie_far_apart(here: World) -> None:
    """Ranks whose images differ by much more than the images of a rank do among themselves."""
    torch.manual_seed(here.rank)
    mine = torch.randn(4, 3, 5, 5) * 1e-3 + 10.0 * here.rank
    gathered = [torch.empty_like(mine) for _ in range(here.size)]
    dist.all_gather(gathered, mine)
    many, one = sync_batch_norm(nn.BatchNorm2d(3)), nn.BatchNorm2d(3)
    torch.testing.assert_close(many(mine), one(torch.cat(gathered))[4 * here.rank : 4 * here.rank + 4])
    torch.testing.assert_close(many.running_var, one.running_var)


def check_evaluation_and_frozen_inputs(here: World) -> None:
    images = share(batch(), here)[0]
    model, synchronized = network().eval(), sync_batch_norm(network()).eval()
    same(synchronized(images), model(images))
    layer = sync_batch_norm(nn.BatchNorm2d(3)).double()
    layer(images).sum().backward()  # no gradient of the images is asked, so that the ranks do not speak in backward
    assert layer.weight.grad is not None


def check_one_value_is_refused_on_all_ranks(here: World) -> None:
    layer = sync_batch_norm(nn.BatchNorm2d(3))
    images = torch.ones(1 if here.rank == 0 else 0, 3, 1, 1)
    with pytest.raises(ValueError, match="more than one value per channel over all ranks together"):
        layer(images)
    assert float(layer.num_batches_tracked) == 0
    layer(torch.full((1, 3, 1, 1), float(here.rank)))  # one on each rank are enough
    torch.testing.assert_close(layer.running_mean, torch.full((3,), 0.1 * (here.size - 1) / 2))


def check_a_group_of_its_own(here: World) -> None:
    groups = [dist.new_group([rank]) for rank in range(here.size)]
    torch.manual_seed(here.rank)
    images = torch.randn(4, 3, 5, 5)
    alone = copy.deepcopy(sync_batch_norm(nn.BatchNorm2d(3), groups[here.rank]))
    same(alone(images), nn.BatchNorm2d(3)(images))
