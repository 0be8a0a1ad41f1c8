"""pytorch/pytorch#47163: ``.contiguous()`` after the transpose from tokens to a map silences a warning, for a copy.

The transpose alone already is a channels-last map. The convolution after it converts back, as a consequence.
"""

import torch
from torch import nn

EXPECT = {"clean": ["flatten", "transpose", "linear", "@embed"]}


class TokenMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 3, padding=1)
        self.mlp = nn.Linear(8, 8)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = self.embed(x)
        n, c, h, w = y.shape
        t = self.mlp(y.flatten(2).transpose(1, 2))
        y = t.transpose(1, 2).contiguous().view(n, c, h, w)  # expect: NH101 operator=contiguous module= bytes=4096
        return self.out(y)  # expect: NH102 operator=conv2d module=out bytes=4096 cause=NH101


def build():
    return TokenMixer(), (torch.randn(2, 3, 8, 8),)
