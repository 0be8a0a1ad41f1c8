"""Real networks with random weights pass in training mode, where rounding is amplified most."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import nn

import nhwc

pytestmark = pytest.mark.usefixtures("few_threads")

SMALL = [
    ("resnet18", (2, 3, 64, 64)),
    ("squeezenet1_1", (2, 3, 48, 48)),
]
LARGE = [
    ("resnet50", (2, 3, 224, 224)),
    ("densenet121", (2, 3, 64, 64)),
    ("mobilenet_v2", (4, 3, 96, 96)),
    ("googlenet", (2, 3, 96, 96)),
    ("vgg11_bn", (2, 3, 64, 64)),
    ("r3d_18", (1, 3, 8, 48, 48)),
    ("deeplabv3_resnet50", (2, 3, 64, 64)),
]


def build(name: str) -> nn.Module:
    make: Callable[..., nn.Module] = torchvision.models.get_model_builder(name)
    options = {"googlenet": {"init_weights": False}, "deeplabv3_resnet50": {"weights_backbone": None}}
    return make(weights=None, **options.get(name, {}))


@pytest.mark.parametrize(("name", "shape"), SMALL, ids=[name for name, _ in SMALL])
def test_a_network_passes_in_training(name: str, shape: tuple[int, ...]) -> None:
    report = nhwc.verify(build(name), torch.randn(shape), train=True)
    assert report.passed, str(report)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "shape"), LARGE, ids=[name for name, _ in LARGE])
def test_a_large_network_passes_in_training(name: str, shape: tuple[int, ...]) -> None:
    report = nhwc.verify(build(name), torch.randn(shape), train=True)
    assert report.passed, str(report)
