"""keras-team/keras#22324: a weight kept as H, W, I, O and permuted at call time is copied by every convolution.

Conversion leaves such a 4-D parameter alone: its bytes are no N, C, H, W.
"""

import torch
from torch import nn
from torch.nn import functional

EXPECT = {
    "convert": "inputs",
    "clean": ["permute"],
    "output_format": "channels_last",
    "strides": {"kernel": (192, 64, 8, 1)},
}


class HwioConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3, 8, 8) * 0.1)

    def forward(self, x):
        weight = self.kernel.permute(3, 2, 0, 1)
        return functional.conv2d(x, weight, padding=1)  # expect: NH105 operator=conv2d module= bytes=2304 calls=1


def build():
    return HwioConv(), (torch.randn(2, 8, 6, 6),)
