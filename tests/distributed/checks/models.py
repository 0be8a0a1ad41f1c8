"""Small models with every kind of weight that matters, a batch, and the steps that train on it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from nhwc.conversion.moves import same_bytes
from nhwc.distributed import World

Batch = tuple[torch.Tensor, torch.Tensor]


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Dense, depthwise, 1x1, one-input-channel and transposed convolutions, and batch norm."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8, bias=False),
        nn.Conv2d(8, 7, 1),
        nn.Sequential(nn.ConvTranspose2d(7, 4, 3, 2), nn.BatchNorm2d(4)),
        nn.Conv2d(4, 1, 3),
        nn.Conv2d(1, 6, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    ).to(dtype)


def volumes() -> nn.Sequential:
    """The same for volumes, in double precision."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv3d(2, 6, 3),
        nn.ReLU(),
        nn.ConvTranspose3d(6, 4, 2),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    ).double()


def batch(*shape: int, dtype: torch.dtype = torch.float64) -> Batch:
    """Images in channels last, (8, 3, 12, 12) by default, and a label for each."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(shape or (8, 3, 12, 12), dtype=dtype, generator=generator)
    last = torch.channels_last if images.dim() == 4 else torch.channels_last_3d
    return images.to(memory_format=last), torch.randint(0, 5, (len(images),), generator=generator)


def share(whole: Batch, here: World) -> Batch:
    """What this rank sees of a batch."""
    images, targets = whole
    return images[here.rank :: here.size], targets[here.rank :: here.size]


def train(model: nn.Module, seen: Batch, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[float]:
    """The loss of each step."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(seen[0]), seen[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """With momentum."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def adam(model: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
    """Its steps do not shrink with the gradients, so that a wrong one shows."""
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)


def same(found: object, wanted: object) -> None:
    """Two states: the same keys, tensors equal to rounding, in the same order in memory."""
    if isinstance(wanted, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, wanted)
        assert same_bytes(found.shape, found.stride(), wanted.stride())
    elif isinstance(wanted, dict):
        assert isinstance(found, dict)
        assert found.keys() == wanted.keys()
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        assert found == wanted
