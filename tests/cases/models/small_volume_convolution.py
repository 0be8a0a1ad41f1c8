"""intel/ipex-llm#6810: a 3-D convolution keeps channels last only where the vendor's kernel is picked.

That depends on batch, size, kernel, dtype and threads, whatever the operands' layouts: audit with production shapes.
The first convolution's input, of one channel, lies in both formats, so no operand is strictly channels last.
"""

import torch
from torch import nn

import nhwc

EXPECT = {
    "output_format": "contiguous",
    "observe": {
        "one_small": "contiguous",
        "two_small": "channels_last_3d",
        "one_kernel_5": "channels_last_3d",
        "one_large": "channels_last_3d",
        "two_kernel_1_one_thread": "contiguous",
        "two_float64": "contiguous",
    },
}


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(1, 4, 3, padding=1)
        self.second = nn.Conv3d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.first(x).relu()  # expect: NH201 operator=conv3d module=first bytes=8192 calls=1
        return self.second(y)  # expect: NH105 operator=conv3d module=second bytes=1728 cause=NH201


def build():
    return Volume(), (torch.randn(1, 1, 8, 8, 8),)


def answers_in(shape, kernel, dtype=torch.float32):
    convolution = nhwc.convert(nn.Conv3d(shape[1], 4, kernel, padding=kernel // 2).to(dtype))
    with torch.no_grad():
        answer = convolution(nhwc.to_format(torch.randn(shape, dtype=dtype), "channels_last_3d"))
    return nhwc.layout_of(answer).kind.value


def observe():
    return {
        "one_small": answers_in((1, 4, 8, 8, 8), 3),
        "two_small": answers_in((2, 4, 8, 8, 8), 3),
        "one_kernel_5": answers_in((1, 4, 8, 8, 8), 5),
        "one_large": answers_in((1, 4, 64, 90, 4), 3),
        "two_kernel_1_one_thread": answers_in((2, 4, 8, 8, 8), 1),
        "two_float64": answers_in((2, 4, 8, 8, 8), 3, torch.float64),
    }
