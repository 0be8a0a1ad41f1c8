"""pytorch/pytorch#34977: grouped convolutions were slow in channels last with an old cuDNN; no format is lost by them.

Only a measurement on the device may advise another format for them, never a rule.
"""

import torch
from torch import nn

EXPECT = {"clean": ["conv2d"], "output_format": "channels_last"}


def build():
    model = nn.Sequential(nn.Conv2d(16, 128, 1), nn.Conv2d(128, 128, 3, padding=1, groups=32), nn.Conv2d(128, 16, 1))
    return model, (torch.randn(2, 16, 14, 14),)
