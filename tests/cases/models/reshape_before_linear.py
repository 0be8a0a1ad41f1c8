"""denisyarats/drq#27: reshape(N, -1) between convolutions and a linear layer copies the activation in channels last.

It is a view in contiguous. (pytorch/benchmark#1367 tells the same of another model.)
"""

import torch
from torch import nn

EXPECT = {"clean": ["conv2d", "@head"]}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 8, 3, stride=2)
        self.c2 = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8 * 5 * 5, 6)

    def forward(self, x):
        y = self.c2(self.c1(x).relu()).relu()
        return self.head(y.reshape(y.size(0), -1))  # expect: NH101 operator=reshape module= bytes=1600 calls=1


def build():
    return Encoder(), (torch.randn(2, 3, 16, 16),)
