"""Batch norm in training: results, running statistics and gradients are torch's, in the input's format."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample
from torch import nn

import nhwc

SHAPES = {"2-D": (3, 6, 5, 7), "3-D": (2, 4, 3, 5, 4), "wide": (2, 600, 3, 3), "one image": (1, 3, 40, 33)}


def plain(x: torch.Tensor, *affine: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, *affine, training=True)


SAMPLES = [Sample(f"plain, {name}", plain, (shape,)) for name, shape in SHAPES.items()]
SAMPLES += [Sample(f"affine, {name}", plain, (shape, shape[1:2], shape[1:2])) for name, shape in SHAPES.items()]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_everything_is_channels_last_and_no_less_exact(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout("batch_norm", sample, dtype)
    conformance.check_accuracy("batch_norm", sample, dtype)


@every
def test_nothing_is_copied_and_contiguous_input_takes_the_original(sample: Sample) -> None:
    conformance.check_no_copies("batch_norm", sample, torch.float32)
    conformance.check_steps_aside("batch_norm", sample, torch.float32)


@every
def test_derivatives(sample: Sample) -> None:
    conformance.check_derivatives("batch_norm", sample)


def test_odd_layouts_and_shapes() -> None:
    conformance.check_odd_layouts("batch_norm", SAMPLES[0])
    conformance.check_shapes(
        "batch_norm", plain, [(2, 1, 4, 4), (2, 3, 1, 1), (1, 3, 1, 5), (1, 2, 1, 1), (0, 2, 3, 3)]
    )


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d(5), nn.BatchNorm2d(5, momentum=None), nn.BatchNorm2d(5, affine=False)]
)
def test_running_statistics_move_as_torchs_do(layer: nn.Module) -> None:
    ours = copy.deepcopy(layer)
    for _ in range(2):
        x = torch.randn(3, 5, 6, 7)
        layer(x)
        with nhwc.kernels.use("batch_norm"):
            ours(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(layer.named_buffers()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_frozen_and_half_precision_layers_are_torchs(dtype: torch.dtype) -> None:
    layer, x = nn.BatchNorm2d(5), torch.randn(3, 5, 6, 7).to(dtype)
    layer.train(dtype == torch.bfloat16)
    again = copy.deepcopy(layer)
    with nhwc.kernels.use("batch_norm"):
        found = again(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, layer(x.to(memory_format=torch.channels_last)), rtol=0, atol=0)


def test_one_running_statistic_alone_is_refused_in_torchs_words() -> None:
    x, weight, mean = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.ones(3), torch.zeros(3)
    conformance.check_error(
        "batch_norm", lambda: torch.native_batch_norm(x, weight, weight, mean, None, True, 0.1, 1e-5)
    )
