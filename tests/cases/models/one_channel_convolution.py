"""pytorch/pytorch#82060: with one input channel and only the model converted, results were once silently wrong.

Fixed today; a (1, 1, H, W) input lies in both formats, so nothing is reported. What remains is a trap in the strides:
``.contiguous(memory_format=)`` leaves the ambiguous weight as it is, conversion writes canonical strides.
"""

import torch
from torch import nn

import nhwc

EXPECT = {
    "convert": "model",
    "clean": ["conv2d"],
    "strides": {"0.weight": (9, 1, 3, 1), "2.weight": (144, 1, 48, 16)},
    "observe": {"contiguous_leaves": (9, 9, 3, 1), "to_format_gives": (9, 1, 3, 1)},
}


def build():
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    return model, (torch.randn(1, 1, 12, 12),)


def observe():
    weight = torch.randn(16, 1, 3, 3)
    return {
        "contiguous_leaves": weight.contiguous(memory_format=torch.channels_last).stride(),
        "to_format_gives": nhwc.to_format(weight, "channels_last").stride(),
    }
