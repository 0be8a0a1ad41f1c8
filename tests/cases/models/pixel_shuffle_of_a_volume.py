"""pytorch/pytorch#133665: PixelShuffle of a 5-D tensor runs in contiguous and raises in channels last."""

import torch
from torch import nn

EXPECT = {"outputs_equal": None, "clean": ["@conv"]}


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 4, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x):
        y = self.conv(x)
        return self.shuffle(y)  # expect: NH403 operator=pixel_shuffle module=shuffle severity=error bytes=0


def build():
    return Shuffled(), (torch.randn(2, 1, 4, 4, 4),)
