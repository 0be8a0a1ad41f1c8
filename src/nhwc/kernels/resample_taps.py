"""Which inputs each output of an interpolation or a padding takes, with what weight: the tables of resample.cpp.

They are read off torch's own operators, which answer a signal of one pixel with its weight in every output: so they are
right for every mode and version. Dimensions do not mix, hence one table per dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

#: Pixels that are tried at a time.
_BLOCK = 256

#: The operator by which one dimension of another is tried.
_AS_IMAGE = {
    "upsample_nearest2d": "upsample_nearest2d",
    "upsample_nearest3d": "upsample_nearest2d",
    "_upsample_nearest_exact2d": "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d": "_upsample_nearest_exact2d",
}
_LINEAR = ("upsample_bilinear2d", "upsample_trilinear3d")


class Taps(NamedTuple):
    """Output ``outputs[k]`` takes ``weights[k]`` of input ``inputs[k]``; sizes: of the dimension before and after."""

    sizes: tuple[int, int]
    outputs: torch.Tensor
    inputs: torch.Tensor
    weights: torch.Tensor

    def transposed(self) -> Taps:
        return Taps(self.sizes[::-1], self.inputs, self.outputs, self.weights)


@lru_cache(maxsize=512)
def interpolated(name: str, before: int, after: int, align_corners: bool, scale: float | None) -> Taps:
    """One dimension of ``aten::<name>``, from ``before`` pixels to ``after``."""
    with torch.inference_mode(False), torch.no_grad():
        if "nearest" in name:
            # by the kernel for channels last, which treats sizes that stay as backward does, whatever the scale
            image = _pixel_numbers(before).view(1, 1, before, 1).repeat(1, 2, 1, 1)
            image = image.contiguous(memory_format=torch.channels_last)
            picked = getattr(torch.ops.aten, _AS_IMAGE[name]).default(image, [after, 1], scale, None)
            return _picks(before, picked[:, :1])
        found = []
        for begin in range(0, before, _BLOCK):
            each = torch.arange(begin, min(begin + _BLOCK, before), device="cpu")
            signals = (each[:, None] == torch.arange(before, device="cpu")).to(torch.float64)
            answers = _answers(name, signals, after, align_corners, scale)
            pixel, output = answers.nonzero().unbind(1)
            found.append((output, pixel + begin, answers[pixel, output]))
        outputs, inputs, weights = (torch.cat(part) for part in zip(*found, strict=True))
        return Taps((before, after), outputs, inputs, weights)


@lru_cache(maxsize=512)
def padded(mode: str, size: int, before: int, after: int) -> Taps:
    """One dimension of ``torch.nn.functional.pad`` in this mode, constant by zero."""
    with torch.inference_mode(False), torch.no_grad():
        # counted from one: zero is what constant padding adds
        chosen = torch.nn.functional.pad(_pixel_numbers(size) + 1, (before, after), mode).flatten().to(torch.int64)
        outputs = chosen.nonzero().flatten()
        weights = torch.ones(outputs.numel(), dtype=torch.float64, device="cpu")
        return Taps((size, chosen.numel()), outputs, chosen[outputs] - 1, weights)


def table(dimensions: Sequence[Taps]) -> torch.Tensor:
    """What resample.cpp reads, as int64: depth (of one pixel for two dimensions), height and width.

    Each is the sizes before and after, where the inputs of each output start, the inputs, and the bits of the weights.
    """
    with torch.inference_mode(False), torch.no_grad():
        missing = 3 - len(dimensions)
        return torch.cat([_section(each) for each in (*[_picks(1, _pixel_numbers(1))] * missing, *dimensions)])


def _section(taps: Taps) -> torch.Tensor:
    before, after = taps.sizes
    order = torch.argsort(taps.outputs * before + taps.inputs)
    start = torch.zeros(after + 1, dtype=torch.int64, device="cpu")
    start[1:] = torch.bincount(taps.outputs, minlength=after).cumsum(0)
    sizes = torch.tensor([before, after], dtype=torch.int64, device="cpu")
    return torch.cat([sizes, start, taps.inputs[order], taps.weights[order].view(torch.int64)])


def _pixel_numbers(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float64, device="cpu").view(1, 1, size)


def _picks(before: int, chosen: torch.Tensor) -> Taps:
    """Outputs that are one input each, whose number ``chosen`` (1, 1, outputs) says."""
    inputs = chosen.flatten().to(torch.int64)
    outputs = torch.arange(inputs.numel(), device="cpu")
    weights = torch.ones(inputs.numel(), dtype=torch.float64, device="cpu")
    return Taps((before, inputs.numel()), outputs, inputs, weights)


def _answers(name: str, signals: torch.Tensor, after: int, align_corners: bool, scale: float | None) -> torch.Tensor:
    """(signals, after): the rows of ``signals`` (signals, before), interpolated."""
    if name in _LINEAR:
        answers = torch.ops.aten.upsample_linear1d.default(signals[None], [after], align_corners, scale)
    else:
        interpolate = getattr(torch.ops.aten, name).default
        # in an image one pixel wide torch's antialiased kernels mistake the height; in wider ones all columns are alike
        columns = 1 if name == "upsample_bicubic2d" else 2
        images = signals[None, :, :, None]
        answers = interpolate(images, [after, columns], align_corners, scale, None)[..., 0]
    return answers.view(signals.shape[0], after)  # type: ignore[no-any-return]
