"""pytorch/pytorch#37968: an N, C, 1, 1 gate looks contiguous, lies in both formats, and loses nothing."""

import torch
from torch import nn

EXPECT = {"clean": ["mean", "sigmoid", "mul", "conv2d", "contiguous"], "output_format": "channels_last"}


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, padding=1)
        self.sq = nn.Conv2d(8, 2, 1)
        self.ex = nn.Conv2d(2, 8, 1)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = self.body(x)
        g = self.ex(self.sq(y.mean((2, 3), keepdim=True)).relu()).sigmoid()
        return self.out(g.contiguous() * y)


def build():
    return Gated(), (torch.randn(2, 3, 8, 8),)
