"""pytorch/pytorch#96738: circular padding writes a contiguous buffer inside Conv2d; reflect and replicate do not.

The convolution's own output is channels last again, so nothing shows at the module's border.
"""

import torch
from torch import nn

EXPECT = {"clean": ["@c0", "@c1"], "output_format": "channels_last"}


class Pads(nn.Module):
    def __init__(self):
        super().__init__()
        self.c0 = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.c1 = nn.Conv2d(8, 8, 3, padding=1, padding_mode="replicate")
        self.c2 = nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        x = self.c0(x)
        x = self.c1(x)
        return self.c2(x)  # expect: NH102 operator=pad module=c2 bytes=4096; NH102 operator=conv2d cause=NH102


def build():
    return Pads(), (torch.randn(2, 3, 8, 8),)
