"""huggingface/pytorch-image-models#1340: permute, layer_norm, permute: free views around a kernel for NHWC."""

import torch
from torch import nn
from torch.nn import functional

EXPECT = {"clean": ["permute", "layer_norm", "conv2d"], "output_format": "channels_last"}


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        y = functional.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return y.permute(0, 3, 1, 2)


def build():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4),
        LayerNorm2d(8),
        nn.Conv2d(8, 8, 7, padding=3, groups=8),
        LayerNorm2d(8),
        nn.Conv2d(8, 4, 1),
    )
    return model, (torch.randn(2, 3, 16, 16),)
