"""pytorch/pytorch#24090: after global pooling N, C, 1, 1 lies in both formats at once, and flattening it is a view."""

import torch
from torch import nn

EXPECT = {"clean": ["flatten", "adaptive_avg_pool2d", "mean", "conv2d", "linear", "view"]}


def build():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(8, 8, 1),
        nn.Flatten(1),
        nn.Linear(8, 4),
    )
    return model, (torch.randn(2, 3, 8, 8),)
