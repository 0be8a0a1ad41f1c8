"""A 2-D U-Net as it is commonly served: two convolutions with batch norm a level, transposed ones up, skips joined."""

from __future__ import annotations

import itertools

import torch
from torch import nn


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (inputs, outputs):
        layers += [nn.Conv2d(before, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """(N, 3, H, W) to (N, classes, H, W); H and W are multiples of 2 ** (levels - 1)."""

    def __init__(self, width: int = 32, levels: int = 5, classes: int = 2) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.stem = _block(3, width)
        self.down = nn.ModuleList(_block(a, b) for a, b in itertools.pairwise(widths))
        self.pool = nn.MaxPool2d(2)
        pairs = list(reversed(list(itertools.pairwise(widths))))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(_block(b, a) for a, b in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.stem(x)]
        for block in self.down:
            maps.append(block(self.pool(maps[-1])))
        y = maps.pop()
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([maps.pop(), up(y)], 1))
        out: torch.Tensor = self.head(y)
        return out
