"""The models that peers.py compares runtimes on, each with random weights and the input that it is served with."""

from __future__ import annotations

import torch
import torchvision
from torch import nn
from unet import UNet

from nhwc.suites.tutorial import TUTORIAL

TUTORIAL_MODELS = tuple(each.name for each in TUTORIAL.models)
#: What is served besides classifiers of the tutorial's time: mobile and modern networks, segmentation, video, a U-Net.
FURTHER_MODELS = (
    "efficientnet_b0",
    "regnet_y_400mf",
    "convnext_tiny",
    "mobilenet_v3_large",
    "deeplabv3_resnet50",
    "lraspp_mobilenet_v3_large",
    "r3d_18",
    "unet",
)
#: Names that stand for several.
LISTS = {"tutorial": TUTORIAL_MODELS, "engine": (*TUTORIAL_MODELS, *FURTHER_MODELS)}

#: Inputs other than (3, 224, 224).
_INPUTS = {"inception_v3": (3, 299, 299), "r3d_18": (3, 16, 112, 112), "unet": (3, 256, 256)}
_CALIBRATION_BATCH = 4
_FAMILIES = (torchvision.models, torchvision.models.segmentation, torchvision.models.video)


def known() -> set[str]:
    """Every name that ``build`` takes."""
    return {"unet"} | {name for family in _FAMILIES for name in torchvision.models.list_models(module=family)}


class MainOutput(nn.Module):
    """What a torchvision segmentation network answers under "out", so that every runtime returns one tensor."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: dict[str, torch.Tensor] = self.network(x)
        return answer["out"]


def build(name: str, batch: int, seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A model with random weights, the same in every process, in evaluation mode, and an input.

    Batch norms get the statistics of random data first: untouched ones let values grow or vanish layer by layer.
    """
    torch.manual_seed(seed)
    model = _network(name)
    shape = _INPUTS.get(name, (3, 224, 224))
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # one batch is the whole average
    if norms:
        model.train()(torch.randn(_CALIBRATION_BATCH, *shape))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval(), torch.randn(batch, *shape)


def _network(name: str) -> nn.Module:
    if name == "unet":
        return UNet()
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name in torchvision.models.list_models(module=torchvision.models.segmentation):
        return MainOutput(torchvision.models.get_model(name, weights=None, weights_backbone=None))
    model: nn.Module = torchvision.models.get_model(name, weights=None, **options)
    return model
