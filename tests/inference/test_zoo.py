"""Whole networks of torchvision against float64: a few small ones always, all of them in the slow run."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
import torchvision
from inference.engines import assert_right, fast, with_statistics
from torch import nn

import nhwc
from nhwc.errors import EngineError

SMALL = ["resnet18", "shufflenet_v2_x0_5", "mnasnet0_5", "squeezenet1_1"]
#: These take no other size than that of their weights.
OF_ONE_SIZE = ("vit", "maxvit", "mvit", "swin3d")
LARGE_INPUTS = {"vit": 224, "inception": 96, "swin": 64, "maxvit": 224, "alexnet": 96, "vgg": 64}


def built(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(9)
    builder = torchvision.models.get_model_builder(name)
    weights = {"weights_backbone": None} if "weights_backbone" in inspect.signature(builder).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = with_statistics(builder(weights=None, **weights))
    if "video" in builder.__module__:
        frames = 16 if name.startswith(("mvit", "swin", "s3d")) else 4
        size = 224 if name.startswith(("mvit", "s3d")) else 112
        return model, torch.randn(1, 3, frames, size, size)
    size = next((size for key, size in LARGE_INPUTS.items() if key in name), 65)
    return model, torch.randn(1, 3, size, size)


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    model, x = built(name)
    assert_right(model, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", torchvision.models.list_models(exclude=["*rcnn*", "retina*", "fcos*", "ssd*", "raft*", "quantized*"])
)
def test_every_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NHWC_CACHE", "0")
    model, x = built(name)
    if sum(parameter.numel() for parameter in model.parameters()) > 200_000_000:
        pytest.skip("too large for the memory of a small machine")
    odd = three_with_gaps(name, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = nhwc.engine(model, x, shapes=[(odd,)], budget_s=5)
    accuracy = engine.contents.accuracy
    assert accuracy is not None
    assert accuracy.holds, accuracy
    warnings.simplefilter("error", RuntimeWarning)  # that torch ran it
    assert_right(model, odd, engine=engine)


def three_with_gaps(name: str, x: torch.Tensor) -> torch.Tensor:
    """A batch of three of an odd size, no row of which touches the next in memory."""
    height, width = x.shape[-2:] if any(each in name for each in OF_ONE_SIZE) else (x.shape[-2] + 9, x.shape[-1] + 4)
    found = torch.randn(3, *x.shape[1:-2], height, width + 5)[..., 2:-3]
    assert not found.is_contiguous()
    return found


def test_a_detector_says_where_it_cannot_be_captured() -> None:
    detector = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None)
    with pytest.raises(EngineError, match=r"torchvision/ops/boxes\.py:\d+"):
        fast(detector.eval(), [torch.rand(3, 60, 80)])
