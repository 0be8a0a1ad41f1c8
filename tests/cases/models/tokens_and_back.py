"""pytorch/pytorch#157663: from convolution to attention and back costs nothing in channels last: all of it is views."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = {"clean": ["flatten", "transpose", "reshape", "chunk", "linear", "conv2d"], "output_format": "channels_last"}


class ConvAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Conv2d(3, 8, 3, padding=1)
        self.qkv = nn.Linear(8, 24)
        self.post = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = self.pre(x)
        n, c, h, w = y.shape
        t = y.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(t).chunk(3, dim=-1)
        t = functional.scaled_dot_product_attention(q, k, v)
        return self.post(t.transpose(1, 2).reshape(n, c, h, w))


def build():
    return ConvAttention(), (torch.randn(2, 3, 6, 6),)
