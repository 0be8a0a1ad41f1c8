"""pytorch/pytorch#77821: ``Module.to(memory_format=)`` raises half-way through a model with 2-D and 3-D layers.

``nhwc.convert`` gives each its own format. With an N, D, H, W, C clip the way to frames and back is free.
"""

import copy

import torch
from torch import nn

EXPECT = {
    "clean": ["reshape", "transpose", "conv2d", "conv3d"],
    "strides": {"frame.weight": (18, 1, 6, 2), "clip.weight": (108, 1, 36, 12, 4)},
    "observe": {
        "channels_last": "required rank 4 tensor to use channels_last format",
        "channels_last_3d": "required rank 5 tensor to use channels_last_3d format",
    },
}


class Hybrid(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Conv2d(2, 4, 3, padding=1)
        self.clip = nn.Conv3d(4, 3, 3, padding=1)

    def forward(self, x):
        n, c, t, h, w = x.shape
        f = self.frame(x.transpose(1, 2).reshape(n * t, c, h, w))
        return self.clip(f.reshape(n, t, 4, h, w).transpose(1, 2))


def build():
    return Hybrid(), (torch.randn(2, 2, 3, 8, 8),)


def observe():
    said = {}
    for memory_format in (torch.channels_last, torch.channels_last_3d):
        try:
            copy.deepcopy(build()[0]).to(memory_format=memory_format)
        except RuntimeError as error:
            said[str(memory_format).removeprefix("torch.")] = str(error)
    return said
