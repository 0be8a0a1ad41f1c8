"""pytorch/pytorch#34996: the backward of cat gives channel slices of a channels-last buffer: odd strides, no loss."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = {
    "train": True,
    "clean": ["cat", "narrow", "slice", "avg_pool2d", "batch_norm", "conv2d", "convolution_backward"],
    "output_format": "channels_last",
}


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.l1 = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1))
        self.l2 = nn.Sequential(nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 4, 3, padding=1))

    def forward(self, x):
        f = self.stem(x)
        f = torch.cat([f, self.l1(f)], 1)
        f = torch.cat([f, self.l2(f)], 1)
        return functional.avg_pool2d(f, 2)


def build():
    return Dense(), (torch.randn(2, 3, 8, 8),)
