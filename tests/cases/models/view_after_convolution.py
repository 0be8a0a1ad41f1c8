"""huggingface/pytorch-image-models#1171: ``.view(N, -1)`` on a convolution's output raises in channels last only.

The audit names the line instead of raising; reshape there costs one copy of 2*6*4*4 elements.
"""

import torch
from torch import nn

EXPECT = {"outputs_equal": None, "clean": ["@stem", "@fc"]}


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.fc = nn.Linear(6 * 4 * 4, 5)

    def forward(self, x):
        y = self.stem(x).relu()
        return self.fc(y.view(y.shape[0], -1))  # expect: NH403 operator=view module= severity=error bytes=0


def build():
    return Head(), (torch.randn(2, 3, 8, 8),)
