"""pytorch/pytorch#111824: whether GroupNorm keeps channels last depends on the device: a table of operators is wrong.

On the CPU eager keeps it and fake tensors predict that it does not, so a static audit must say that it may be mistaken.
That it is slow in channels last is a suspicion, a note until it is measured.
"""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

EXPECT = {
    "findings": [{"code": "NH205", "operator": "group_norm", "module": "1", "severity": "note"}],
    "clean": ["group_norm", "conv2d"],
    "output_format": "channels_last",
    "observe": {"eager": (1024, 1, 128, 16), "fake": (1024, 64, 8, 1)},
}


def build():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 4, 3, padding=1)
    )
    return model, (torch.randn(2, 3, 8, 8),)


def observe():
    x = torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        fake = functional.group_norm(mode.from_tensor(x), 4)
    return {"eager": functional.group_norm(x, 4).stride(), "fake": fake.stride()}
