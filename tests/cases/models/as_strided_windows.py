"""pytorch/pytorch#174963: strides written by hand in as_strided read other numbers once the tensor is channels last.

It is neither a copy nor a loss of format: the numbers are wrong, an error.
"""

import torch
from torch import nn

EXPECT = {"outputs_equal": False, "clean": ["conv2d"]}


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        y = self.c(x)
        n, c, h, w = y.shape
        size, stride = (n, c, h - 1, w - 1, 2, 2), (c * h * w, h * w, w, 1, w, 1)
        return y.as_strided(size, stride)  # expect: NH303 operator=as_strided severity=error bytes=0


def build():
    return Windows(), (torch.randn(2, 1, 5, 5),)
