"""Channel shuffle on a GPU: the composition of the CPU, whose one copy torch's own kernel makes, row by row."""

from __future__ import annotations

from nhwc.kernels import gpu
from nhwc.kernels.shuffle import SHUFFLE, channel_shuffle, contiguous

SHUFFLE.replaces("aten::contiguous", "AutogradCUDA", where=gpu.is_present)(contiguous)
for _operator in ("aten::channel_shuffle", "aten::native_channel_shuffle"):
    for _key in ("CUDA", "AutogradCUDA"):
        SHUFFLE.replaces(_operator, _key, where=gpu.is_present)(channel_shuffle)
