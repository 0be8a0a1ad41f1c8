"""Group norm on a GPU, where torch's own copies a channels-last input and answers contiguous; instance norm runs as it.

Forward reads the input twice and writes it once, backward reads input and gradient twice and writes one gradient: what
torch's kernels move for a contiguous input. Sums are kept per chunk of rows and added in one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nhwc.kernels import gpu
from nhwc.kernels.dispatcher import is_plain
from nhwc.kernels.layouts import empty_channels_last
from nhwc.kernels.norm import GROUP_NORM, are_per_channel
from nhwc.kernels.triton.conversion import as_channels_last
from nhwc.kernels.triton.types import in_triton, sums_of

#: Chunks of rows are cut until about so many programs have work; the same on every GPU, and so are the sums.
_PROGRAMS = 1024
_TILE = 512


@dataclass(frozen=True)
class _Launch:
    """How a (samples, rows, channels) tensor is cut: tiles, chunks of whole tiles, and the grids over both."""

    samples: int
    rows: int
    channels: int
    groups: int
    tile_rows: int
    tile_channels: int
    chunk_rows: int
    chunks: int
    sums: torch.dtype

    @property
    def channel_blocks(self) -> int:
        return gpu.blocks(self.channels, self.tile_channels)

    @property
    def row_blocks(self) -> int:
        return gpu.blocks(self.rows, self.tile_rows)

    @property
    def tiles(self) -> dict[str, Any]:
        return {"sums": in_triton(self.sums), "tile_rows": self.tile_rows, "tile_channels": self.tile_channels}


@GROUP_NORM.replaces("aten::native_group_norm", "CUDA", where=gpu.has_triton)
def native_group_norm(
    input: torch.Tensor,  # noqa: A002 torch's name
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,  # noqa: N803 torch's names
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> Any:
    if not (gpu.serves(input) and input.shape[:2] == (N, C) and N * C * HxW == input.numel()):
        return NotImplemented
    if group <= 0 or C % group or not _fit(input, weight, bias):
        return NotImplemented
    from nhwc.kernels.triton.programs import norm as programs

    cut = _launch(input, N, HxW, C, group)
    result = empty_channels_last(input.shape, input)
    mean, rstd = (torch.empty((N, group), dtype=cut.sums, device=input.device) for _ in range(2))
    means, squares = _parts(cut, input), _parts(cut, input)
    with gpu.on_device_of(input):
        programs.moments[(N * cut.chunks, cut.channel_blocks)](
            input, means, squares, HxW, C, cut.chunk_rows, cut.chunks, **cut.tiles
        )
        programs.statistics[(N * group,)](
            means,
            squares,
            mean,
            rstd,
            HxW,
            C,
            group,
            cut.chunk_rows,
            cut.chunks,
            eps=eps,
            sums=in_triton(cut.sums),
            tile=_TILE,
        )
        programs.normalize[(N * cut.row_blocks, cut.channel_blocks)](
            input,
            result,
            mean,
            rstd,
            weight,
            bias,
            HxW,
            C,
            group,
            cut.row_blocks,
            has_weight=weight is not None,
            has_bias=bias is not None,
            **cut.tiles,
        )
    return result, mean, rstd


@GROUP_NORM.replaces("aten::native_group_norm_backward", "CUDA", where=gpu.has_triton)
def native_group_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,  # noqa: N803
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: list[bool],
) -> Any:
    if not (gpu.serves(input) and gpu.has_shape(grad_out, input.shape, input) and _fit(input, weight)):
        return NotImplemented
    from nhwc.kernels.triton.programs import norm as programs

    cut = _launch(input, N, HxW, C, group)
    grad = as_channels_last(grad_out)
    mean, rstd = mean.to(cut.sums), rstd.to(cut.sums)
    weighted, plain = _parts(cut, input), _parts(cut, input)
    with gpu.on_device_of(input):
        programs.products[(N * cut.chunks, cut.channel_blocks)](
            grad, input, mean, rstd, weighted, plain, HxW, C, group, cut.chunk_rows, cut.chunks, **cut.tiles
        )
        grad_input = _grad_input(cut, (grad, input, mean, rstd, weight), (weighted, plain)) if output_mask[0] else None
        parameter = input.dtype if weight is None else weight.dtype
        grad_weight = _over_samples(cut, weighted, parameter) if output_mask[1] else None
        grad_bias = _over_samples(cut, plain, parameter) if output_mask[2] else None
    return grad_input, grad_weight, grad_bias


def _grad_input(cut: _Launch, operands: tuple[Any, ...], parts: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """operands: gradient, input, mean, deviation and weight. parts: what ``products`` wrote."""
    from nhwc.kernels.triton.programs import norm as programs

    grad, input, mean, rstd, weight = operands  # noqa: A001 torch's name
    result = empty_channels_last(input.shape, input)
    weighted_mean, plain_mean = torch.empty_like(mean), torch.empty_like(mean)
    programs.group_means[(cut.samples * cut.groups,)](
        *parts,
        weight,
        weighted_mean,
        plain_mean,
        cut.rows,
        cut.channels,
        cut.groups,
        cut.chunks,
        sums=in_triton(cut.sums),
        has_weight=weight is not None,
        tile=_TILE,
    )
    programs.normalize_backward[(cut.samples * cut.row_blocks, cut.channel_blocks)](
        grad,
        input,
        result,
        mean,
        rstd,
        weight,
        weighted_mean,
        plain_mean,
        cut.rows,
        cut.channels,
        cut.groups,
        cut.row_blocks,
        has_weight=weight is not None,
        **cut.tiles,
    )
    return result


def _over_samples(cut: _Launch, parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    from nhwc.kernels.triton.programs import norm as programs

    result = torch.empty((cut.channels,), dtype=dtype, device=parts.device)
    count = cut.samples * cut.chunks
    tile_rows, tile_channels = gpu.tile(count, cut.channels, elements=1024, widest=16)
    programs.over_samples[(gpu.blocks(cut.channels, tile_channels),)](
        parts,
        result,
        count,
        cut.channels,
        sums=in_triton(cut.sums),
        tile_rows=tile_rows,
        tile_channels=tile_channels,
    )
    return result


def _launch(input: torch.Tensor, samples: int, rows: int, channels: int, groups: int) -> _Launch:  # noqa: A002
    tile_rows, tile_channels = gpu.tile(rows, channels)
    row_blocks = gpu.blocks(rows, tile_rows)
    wanted = gpu.blocks(_PROGRAMS, samples * gpu.blocks(channels, tile_channels))
    chunk_rows = gpu.blocks(row_blocks, min(wanted, row_blocks)) * tile_rows
    chunks = gpu.blocks(rows, chunk_rows)
    sums = sums_of(input.dtype)
    return _Launch(samples, rows, channels, groups, tile_rows, tile_channels, chunk_rows, chunks, sums)


def _parts(cut: _Launch, like: torch.Tensor) -> torch.Tensor:
    return torch.empty((cut.samples, cut.chunks, cut.channels), dtype=cut.sums, device=like.device)


def _fit(input: torch.Tensor, *parameters: torch.Tensor | None) -> bool:  # noqa: A002
    """Whether the ``parameters`` are plain ones of a value per channel, as torch takes them, and of one dtype."""
    return all(each is None or is_plain(each) for each in parameters) and are_per_channel(input, *parameters)
