"""A 3-D residual U-Net as nnU-Net builds it: InstanceNorm3d, LeakyReLU, strided and transposed convolutions."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions with instance norm, around them the input (through a 1x1x1 convolution where it changes)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.InstanceNorm3d(outputs, affine=True)
        self.second = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.InstanceNorm3d(outputs, affine=True)
        self.act = nn.LeakyReLU(0.01, inplace=True)
        self.pool = nn.AvgPool3d(stride, stride) if stride > 1 else nn.Identity()
        self.project = nn.Identity()
        if inputs != outputs:
            self.project = nn.Sequential(
                nn.Conv3d(inputs, outputs, 1, bias=False), nn.InstanceNorm3d(outputs, affine=True)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.first_norm(self.first(x)))
        return self.act(self.second_norm(self.second(y)) + self.project(self.pool(x)))


class Up(nn.Module):
    """Twice the size by a transposed convolution, joined with the encoder's map of that size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(inputs, outputs, 2, 2)
        self.block = Residual(2 * outputs, outputs)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.block(torch.cat([self.up(x), skip], 1))


class ResidualUNet3d(nn.Module):
    """(N, 1, D, H, W) to (N, classes, D, H, W); D, H and W are multiples of 2 ** (levels - 1)."""

    def __init__(self, width: int = 32, levels: int = 4, classes: int = 3) -> None:
        super().__init__()
        widths = [min(width * 2**level, 320) for level in range(levels)]
        self.stem = Residual(1, width)
        self.down = nn.ModuleList(Residual(a, b, 2) for a, b in itertools.pairwise(widths))
        self.up = nn.ModuleList(Up(b, a) for a, b in reversed(list(itertools.pairwise(widths))))
        self.head = nn.Conv3d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.stem(x)]
        for block in self.down:
            maps.append(block(maps[-1]))
        y = maps.pop()
        for block in self.up:
            y = block(y, maps.pop())
        out: torch.Tensor = self.head(y)
        return out
