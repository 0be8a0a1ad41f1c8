"""pytorch/pytorch#34084: cat keeps channels last only if every operand has it; one small new tensor drags all along."""

import torch
from torch import nn

EXPECT = {"clean": ["@feat", "new_zeros", "copy_"]}


class CoordConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.feat = nn.Conv2d(3, 6, 3, padding=1)
        self.fuse = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        y = self.feat(x)
        n, _, h, w = y.shape
        coords = y.new_zeros(n, 2, h, w)
        coords[:, 0] = torch.linspace(-1, 1, w)
        coords[:, 1] = torch.linspace(-1, 1, h)[:, None]
        y = torch.cat([y, coords], dim=1)  # expect: NH202 operator=cat module= bytes=4096 calls=1
        return self.fuse(y)  # expect: NH102 operator=conv2d module=fuse bytes=4096 cause=NH202


def build():
    return CoordConv(), (torch.randn(2, 3, 8, 8),)
