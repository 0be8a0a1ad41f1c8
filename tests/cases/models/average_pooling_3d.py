"""pytorch/pytorch#60619: avg_pool3d copies its input to contiguous inside, adaptive_avg_pool3d only writes contiguous.

max_pool3d keeps channels last. (pytorch/pytorch#48430 is behind it.)
"""

import torch
from torch import nn

EXPECT = {"clean": ["@c0", "@mx", "max_pool3d"]}


class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.c0 = nn.Conv3d(2, 4, 3, padding=1)
        self.mx = nn.MaxPool3d(2)
        self.av = nn.AvgPool3d(2)
        self.c1 = nn.Conv3d(4, 4, 3, padding=1)
        self.ad = nn.AdaptiveAvgPool3d(2)
        self.c2 = nn.Conv3d(4, 2, 3, padding=1)

    def forward(self, x):
        x = self.mx(self.c0(x))
        x = self.av(x)  # expect: NH102 operator=avg_pool3d module=av bytes=16384
        x = self.c1(x)  # expect: NH102 operator=conv3d module=c1 bytes=2048 cause=NH102
        x = self.ad(x)  # expect: NH201 operator=adaptive_avg_pool3d module=ad bytes=256
        return self.c2(x)  # expect: NH102 operator=conv3d module=c2 bytes=256 cause=NH201


def build():
    return Pools(), (torch.randn(2, 2, 16, 16, 16),)
