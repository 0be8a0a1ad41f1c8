"""csarofeen/pytorch#1888: random kernels fill memory in its own order: the same seed gives another mask, and no fault.

Outputs can be compared in evaluation mode only; the audit has nothing to say.
"""

import torch
from torch import nn

import nhwc

EXPECT = {
    "clean": ["dropout", "conv2d"],
    "output_format": "channels_last",
    "observe": {"train_equal": False, "eval_equal": True},
}


def build():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(8, 4, 1))
    return model, (torch.randn(2, 3, 8, 8),)


def dropped(layer, x):
    torch.manual_seed(1)
    return layer(x)


def observe():
    model, (x,) = build()
    h = model[0](x).detach()
    last = nhwc.to_format(h, "channels_last")
    return {
        "train_equal": torch.allclose(dropped(model[1].train(), h), dropped(model[1], last)),
        "eval_equal": torch.allclose(dropped(model[1].eval(), h), dropped(model[1], last)),
    }
