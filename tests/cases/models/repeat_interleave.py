"""pytorch/pytorch#65687: nearest upsampling written with repeat_interleave leaves channels last.

The first one reads channels last and is the culprit; the second only goes on in the format that it was given.
"""

import torch
from torch import nn

EXPECT = {"clean": ["@a"]}


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        y = self.a(x)
        y = y.repeat_interleave(2, dim=2)  # expect: NH102 operator=repeat_interleave module= bytes=4608 calls=1
        y = y.repeat_interleave(2, dim=3)
        return self.b(y)  # expect: NH102 operator=conv2d module=b bytes=9216 cause=NH102


def build():
    return Up(), (torch.randn(2, 3, 6, 6),)
