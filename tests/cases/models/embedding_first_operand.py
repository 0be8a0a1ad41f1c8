"""yangsenius/TransPose#5: ``pos + feat`` is contiguous, ``feat + pos`` channels last: the first operand decides.

Old releases warned (pytorch/pytorch#42300); torch is silent today. The message names the contiguous operand.
"""

import torch
from torch import nn

EXPECT = {"clean": ["@right", "@feat"]}


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.feat = nn.Conv2d(3, 8, 3, padding=1)
        self.pos = nn.Parameter(torch.randn(1, 8, 10, 10))
        self.left = nn.Conv2d(8, 4, 3, padding=1)
        self.right = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        y = self.feat(x)
        p = self.pos[..., : y.shape[2], : y.shape[3]].contiguous()
        lost = p + y  # expect: NH202 operator=add module= bytes=4096 calls=1
        kept = y + p
        left = self.left(lost)  # expect: NH102 operator=conv2d module=left bytes=4096 cause=NH202
        return left, self.right(kept)


def build():
    return Position(), (torch.randn(2, 3, 8, 8),)
