"""Interpolation on channels-last rows: bicubic and antialiased forward, and every mode's backward.

torch's bicubic and antialiased kernels go through one channel after the other, as its 3-D backward ones do; those that
keep the format share a backward out by samples only, and answer a contiguous gradient in contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from nhwc.kernels import native, resample_taps
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.incoming import with_gradient_in_channels_last
from nhwc.kernels.layouts import as_channels_last, empty_channels_last, loops_serve, pixel_step
from nhwc.kernels.registry import kernel

INTERPOLATE = kernel(
    "interpolate",
    "interpolate: bicubic and antialiased ones forward, every mode backward",
    native="torch's own kernels run: bicubic and antialiased results, and gradients in 3-D, are contiguous",
    native_only=("aten::upsample_bicubic2d*", "*_aa", "*_aa_backward", "*3d_backward"),
)

#: torch has them in float32 and float64 only.
_ANTIALIASED = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
#: With a loop of ours forward too.
_BOTH_WAYS = ("upsample_bicubic2d", *_ANTIALIASED)
_ONLY_BACK = (
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
)

_resample = native.Function("resample", "ippp" + "ll")


def resampled(source: torch.Tensor, shape: Sequence[int], table: torch.Tensor) -> torch.Tensor:
    """A tensor of spatial sizes ``shape`` from one that the loops serve, by a table of ``resample_taps``."""
    samples, channels = source.shape[:2]
    result = empty_channels_last((samples, channels, *shape), source)
    _resample(native.dtype_code(source.dtype), source, result, table, samples, channels)
    return result


@lru_cache(maxsize=256)
def _table(
    name: str, before: tuple[int, ...], after: tuple[int, ...], options: tuple[Any, ...], transposed: bool
) -> torch.Tensor | None:
    """options: align_corners, where the mode has it, and scales; the last ones may be missing."""
    align_corners, scales = (False, options) if "nearest" in name else (options[0], options[1:])
    scales = (*scales, None, None, None)[: len(before)]
    if name in _BOTH_WAYS and any(_is_doubtful(name, *each) for each in zip(before, after, scales, strict=True)):
        return None
    dimensions = [
        resample_taps.interpolated(name, *sizes, align_corners, scale)
        for *sizes, scale in zip(before, after, scales, strict=True)
    ]
    return resample_taps.table([each.transposed() for each in dimensions] if transposed else dimensions)


def _is_doubtful(name: str, before: int, after: int, scale: float | None) -> bool:
    """A scale that changes no size, which torch's kernels follow in one pass and not in the other; or one pixel that
    stays one, where its antialiased kernels mistake the other dimension.
    """
    return before == after and (scale not in {None, 1.0} or (before == 1 and name in _ANTIALIASED))


def _register_forward(name: str, rank: int, dtypes: tuple[torch.dtype, ...]) -> None:
    @INTERPOLATE.replaces(f"aten::{name}")
    def forward(self: torch.Tensor, output_size: Sequence[int], *options: Any) -> Any:
        if self.dim() != rank or not loops_serve(self) or self.dtype not in dtypes:
            return NotImplemented
        after = tuple(output_size)
        if len(after) != rank - 2 or min(after) < 1:
            return NotImplemented
        table = _table(name, tuple(self.shape[2:]), after, options, False)
        return NotImplemented if table is None else resampled(self, after, table)


def _register_backward(name: str, rank: int, dtypes: tuple[torch.dtype, ...]) -> None:
    @INTERPOLATE.replaces(f"aten::{name}", "AutogradCPU")
    def differentiable(self: torch.Tensor, output_size: Sequence[int], *options: Any) -> Any:  # noqa: ARG001 torch's signature
        return with_gradient_in_channels_last(self)

    @INTERPOLATE.replaces(f"aten::{name}_backward")
    def backward(
        grad_output: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *options: Any
    ) -> Any:
        if grad_output.dim() != rank or grad_output.dtype not in dtypes:
            return NotImplemented
        if not loops_serve(grad_output):
            if not (is_plain(grad_output) and pixel_step(grad_output) is not None):
                return NotImplemented
            grad_output = as_channels_last(grad_output)  # channels of a wider gradient, as behind a cat
            if not loops_serve(grad_output):
                return NotImplemented
        before, after = tuple(input_size), tuple(output_size)
        if len(before) != rank or min(before) < 1 or grad_output.shape != (*before[:2], *after):
            return NotImplemented
        table = _table(name, before[2:], after, options, True)
        return NotImplemented if table is None else resampled(grad_output, before[2:], table)


for _name in (*_BOTH_WAYS, *_ONLY_BACK):
    if hasattr(torch.ops.aten, _name):  # torch 2.14 brought the one by Lanczos
        _rank = 5 if _name.endswith("3d") else 4
        _dtypes = (torch.float32, torch.float64, *(() if _name in _ANTIALIASED else (torch.bfloat16, torch.float16)))
        _register_backward(_name, _rank, _dtypes)
        if _name in _BOTH_WAYS:
            _register_forward(_name, _rank, _dtypes)
