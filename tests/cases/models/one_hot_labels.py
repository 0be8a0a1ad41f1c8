"""pytorch/pytorch#43195: one_hot and permute of N, H, W labels are channels last already, and float() keeps it.

The only input is of integers and rank 3: conversion leaves it alone.
"""

import torch
from torch import nn
from torch.nn import functional

EXPECT = {"convert": "model", "clean": ["one_hot", "permute", "to", "conv2d"], "output_format": "channels_last"}


class LabelConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(5, 4, 3, padding=1)

    def forward(self, labels):
        return self.c(functional.one_hot(labels, 5).permute(0, 3, 1, 2).float())


def build():
    return LabelConv(), (torch.randint(0, 5, (2, 8, 8)),)
