"""torchvision's operators, layers and transforms; left out where it is not installed."""

from __future__ import annotations

import importlib.util

import torch

from nhwc.ops.case import Case
from nhwc.ops.samples.registry import Draw, Shape, sample

#: Whether the samples below are registered.
IS_INSTALLED = importlib.util.find_spec("torchvision") is not None


def _boxes(draw: Draw, shape: Shape) -> torch.Tensor:
    """Two boxes in every picture: (2 N, 5), the picture's number first."""
    n, _, height, width = shape
    corners = [[0.0, 0.0, width * 0.6, height * 0.6], [width * 0.2, height * 0.3, width * 0.9, height * 0.9]]
    rows = [[float(picture), *corner] for picture in range(n) for corner in corners]
    return torch.tensor(rows, device=draw.device, dtype=draw.dtype).reshape(-1, 5)


if IS_INSTALLED:

    @sample("roi_align", "torchvision", dims=(2,))
    def roi_align(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return Case(ops.roi_align, (draw.normal(*shape), _boxes(draw, shape), 4), {"sampling_ratio": 2})

    @sample("roi_pool", "torchvision", dims=(2,))
    def roi_pool(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return Case(ops.roi_pool, (draw.normal(*shape), _boxes(draw, shape), 4))

    @sample("ps_roi_align", "torchvision", dims=(2,))
    def ps_roi_align(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return Case(ops.ps_roi_align, (draw.normal(*shape), _boxes(draw, shape), 2), {"sampling_ratio": 2})

    @sample("ps_roi_pool", "torchvision", dims=(2,))
    def ps_roi_pool(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return Case(ops.ps_roi_pool, (draw.normal(*shape), _boxes(draw, shape), 2))

    @sample("deform_conv2d", "torchvision", dims=(2,))
    def deform_conv2d(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        n, channels, height, width = shape
        offset = draw.normal(n, 18, height, width)
        return Case(ops.deform_conv2d, (draw.normal(*shape), offset, draw.normal(16, channels, 3, 3)), {"padding": 1})

    @sample("FrozenBatchNorm2d", "torchvision", dims=(2,))
    def frozen_batch_norm(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return draw.module(ops.FrozenBatchNorm2d(shape[1]), draw.normal(*shape))

    @sample("SqueezeExcitation", "torchvision", dims=(2,))
    def squeeze_excitation(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return draw.module(ops.SqueezeExcitation(shape[1], 4), draw.normal(*shape))

    @sample("LayerNorm2d of ConvNeXt", "torchvision", dims=(2,))
    def layer_norm_2d(draw: Draw, shape: Shape) -> Case:
        from torchvision.models.convnext import LayerNorm2d

        return draw.module(LayerNorm2d(shape[1]), draw.normal(*shape))

    @sample("stochastic_depth, evaluation", "torchvision", dims=(2, 3))
    def stochastic_depth(draw: Draw, shape: Shape) -> Case:
        from torchvision import ops

        return Case(ops.stochastic_depth, (draw.normal(*shape), 0.5, "row", False))

    @sample("transforms.v2: resize", "torchvision", dims=(2,))
    def resize(draw: Draw, shape: Shape) -> Case:
        from torchvision.transforms.v2 import functional

        return Case(functional.resize, (draw.normal(*shape), [8, 8]))

    @sample("transforms.v2: normalize", "torchvision", dims=(2,))
    def normalize(draw: Draw, shape: Shape) -> Case:
        from torchvision.transforms.v2 import functional

        return Case(functional.normalize, (draw.normal(*shape), [0.5] * shape[1], [0.25] * shape[1]))

    @sample("transforms.v2: horizontal_flip", "torchvision", dims=(2,))
    def horizontal_flip(draw: Draw, shape: Shape) -> Case:
        from torchvision.transforms.v2 import functional

        return Case(functional.horizontal_flip, (draw.normal(*shape),))

    @sample("transforms.v2: gaussian_blur", "torchvision", dims=(2,))
    def gaussian_blur(draw: Draw, shape: Shape) -> Case:
        from torchvision.transforms.v2 import functional

        return Case(functional.gaussian_blur, (draw.normal(*shape), [3, 3]))
