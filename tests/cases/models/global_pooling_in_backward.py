"""pytorch/pytorch#60137: the forward pass is clean, but the first large gradient of global pooling is contiguous.

No single operator reads channels last and writes contiguous there: a gradient has to be held against its activation.
The weight's gradient ends up in the right strides all the same.
"""

import torch
from torch import nn

EXPECT = {
    "train": True,
    "findings": [
        {"code": "NH203", "module": "2", "phase": "backward", "bytes": 4096, "calls": 1},
        {"code": "NH102", "operator": "convolution_backward", "module": "1", "phase": "backward", "cause": "NH203"},
    ],
    "clean": ["conv2d", "adaptive_avg_pool2d", "flatten", "linear"],
    "observe": {"gradient": (512, 64, 8, 1), "weight_gradient": (72, 1, 24, 8)},
}


def build():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(8, 4),
    )
    return model, (torch.randn(2, 3, 8, 8),)


def observe():
    model, (x,) = build()
    model.to(memory_format=torch.channels_last)
    seen = []
    h = model[1](model[0](x.to(memory_format=torch.channels_last)))
    h.register_hook(lambda gradient: seen.append(gradient.stride()))
    model[4](model[3](model[2](h))).sum().backward()
    return {"gradient": seen[0], "weight_gradient": model[1].weight.grad.stride()}
