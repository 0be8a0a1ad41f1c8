"""Pictures in channels last from the file to the device: no transpose on the way, normalised in one pass.

A decoder writes rows of pixels, N, H, W, C in memory, which is what channels last means. This package keeps that order:
``decode`` gives a view of it, the transforms here keep it, ``collate`` stacks it, ``Loader`` moves and normalises it.

>>> import torch, nhwc
>>> pictures = [torch.zeros(8, 8, 3, dtype=torch.uint8).permute(2, 0, 1) for _ in range(2)]
>>> batch = nhwc.data.collate(pictures)
>>> batch.shape, batch.is_contiguous(memory_format=torch.channels_last)
(torch.Size([2, 3, 8, 8]), True)
"""

from __future__ import annotations

from nhwc.data.arrays import Arrays
from nhwc.data.collation import collate
from nhwc.data.decoding import decode
from nhwc.data.folders import ImageFolder
from nhwc.data.loader import Loader
from nhwc.data.normalization import normalize
from nhwc.data.synthetic import Synthetic
from nhwc.data.transforms import EvalTransform, TrainTransform, eval_transform, train_transform
from nhwc.data.unreadable import Unreadable

__all__ = [
    "Arrays",
    "EvalTransform",
    "ImageFolder",
    "Loader",
    "Synthetic",
    "TrainTransform",
    "Unreadable",
    "collate",
    "decode",
    "eval_transform",
    "normalize",
    "train_transform",
]
