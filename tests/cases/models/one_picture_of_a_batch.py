"""pytorch/pytorch#68430: ``x[0].unsqueeze(0)`` passes the channels-last check, yet kernels read it as contiguous.

Its batch stride is 3 instead of C*H*W: pooling answers in contiguous, and so does a convolution whose weight is
contiguous. ``x[:1]`` is safe. (pytorch/pytorch#110387 and #78611 have the same root.)
"""

import torch
from torch import nn

import nhwc

EXPECT = {
    "convert": "inputs",
    "clean": ["select", "unsqueeze"],
    "observe": {
        "strides": (3, 1, 24, 3),
        "canonical": (192, 1, 24, 3),
        "is_contiguous": True,
        "is_canonical": False,
        "restride_is_free": True,
        "pooled": "contiguous",
        "pooled_after_restride": "channels_last",
        "pooled_slice": "channels_last",
        "findings_with_slice": [],
    },
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3, padding=1)
        self.p = nn.MaxPool2d(2)

    def forward(self, batch):
        one = batch[0].unsqueeze(0)
        p = self.p(one)  # expect: NH302 operator=max_pool2d module=p bytes=768
        return p, self.c(one)  # expect: NH302 operator=conv2d module=c bytes=768


class Sliced(Net):
    def forward(self, batch):
        return self.p(batch[:1]), self.c(batch[:1])


def build():
    return Net(), (torch.randn(2, 3, 8, 8),)


def observe():
    batch = nhwc.to_format(torch.randn(2, 3, 8, 8), "channels_last")
    one = batch[0].unsqueeze(0)
    layout = nhwc.layout_of(one)
    restrided = nhwc.to_format(one, "channels_last")
    pool = nn.MaxPool2d(2)
    report = nhwc.audit(nhwc.convert(Sliced()), batch, convert=False, repeats=0)
    return {
        "strides": one.stride(),
        "canonical": layout.canonical,
        "is_contiguous": one.is_contiguous(memory_format=torch.channels_last),
        "is_canonical": layout.is_canonical,
        "restride_is_free": restrided.data_ptr() == one.data_ptr(),
        "pooled": nhwc.layout_of(pool(one)).kind.value,
        "pooled_after_restride": nhwc.layout_of(pool(restrided)).kind.value,
        "pooled_slice": nhwc.layout_of(pool(batch[:1])).kind.value,
        "findings_with_slice": [finding.code for finding in report.culprits],
    }
