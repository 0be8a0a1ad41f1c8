"""pytorch/pytorch#72341: InstanceNorm2d copies its input to contiguous inside and hands back contiguous.

The convolution after it pays to convert back; replacing the norm cures both.
"""

import torch
from torch import nn

EXPECT = {"clean": ["@enc", "@act"], "output_format": "channels_last"}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.act = nn.ReLU()
        self.dec = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        y = self.enc(x)
        y = self.norm(y)  # expect: NH102 operator=instance_norm module=norm bytes=16384 calls=1
        y = self.act(y)
        return self.dec(y)  # expect: NH102 operator=conv2d module=dec bytes=16384 cause=NH102


def build():
    return Block(), (torch.randn(2, 3, 16, 16),)
