"""Samples → a batch whose pictures lie N, H, W, C in memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate

from nhwc.data.decoding import pixels_of, rows_of
from nhwc.data.shared import empty_rows
from nhwc.data.unreadable import Unreadable
from nhwc.errors import DataError
from nhwc.formats import to_format
from nhwc.kernels.layouts import transpose

_CHANNELS = frozenset({1, 3, 4})


def collate(samples: Sequence[Any]) -> Any:
    """A batch of ``samples`` with its pictures in channels last: a ``collate_fn`` for ``torch.utils.data.DataLoader``.

    Pictures are tensors of three dimensions (C, H, W, with any strides; tv_tensors too), NumPy arrays (H, W, C with 1,
    3 or 4 channels) and pictures of Pillow (gray as one channel, all others as RGB), alone or inside tuples and
    dictionaries. They are stacked as N, H, W, C memory and handed out as a view of it, shape (N, C, H, W), in their
    own dtype. Everything else is what ``default_collate`` makes of it.

    ``Unreadable`` samples are left out with a warning that names them. Raises DataError where nothing remains, and
    where pictures differ in shape or dtype.
    """
    readable, unreadable = split(samples)
    for each in unreadable:
        warnings.warn(f"left out of its batch: {each}", stacklevel=2)
    if not readable:
        first = f"; the first: {unreadable[0]}" if unreadable else ""
        raise DataError(f"no sample of this batch of {len(samples)} can be read{first}")
    return stack(readable)


def split(samples: Sequence[Any]) -> tuple[list[Any], list[Unreadable]]:
    """The samples that can be read, and those that cannot."""
    return (
        [each for each in samples if not isinstance(each, Unreadable)],
        [each for each in samples if isinstance(each, Unreadable)],
    )


def stack(samples: Sequence[Any]) -> Any:
    """``collate`` of samples that can be read, one at least."""
    first = samples[0]
    if _is_picture(first):
        return _stacked([_as_tensor(each) for each in samples])
    if isinstance(first, Mapping):
        return {key: stack([each[key] for each in samples]) for key in first}
    if isinstance(first, tuple | list):
        if any(len(each) != len(first) for each in samples):
            raise DataError(
                f"samples of a batch have {sorted({len(each) for each in samples})} parts; give all the same"
            )
        columns = [stack(column) for column in zip(*samples, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    return default_collate(list(samples))


def _is_picture(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() == 3 and value.layout == torch.strided and not value.is_nested
    numpy, pillow = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.ndim == 3 and value.shape[2] in _CHANNELS
    return pillow is not None and isinstance(value, pillow.Image)


def _as_tensor(value: Any) -> torch.Tensor:
    """A picture of any kind as a plain tensor (C, H, W)."""
    if isinstance(value, torch.Tensor):
        return value if type(value) is torch.Tensor else value.as_subclass(torch.Tensor)
    if not _is_picture(value):
        raise DataError(f"a batch holds pictures and {type(value).__name__} in one place; give the same of each sample")
    if hasattr(value, "getbands"):
        return rows_of(value) if value.mode == "L" else pixels_of(value)
    usable = value.flags.writeable and all(step >= 0 for step in value.strides)  # as torch.from_numpy asks
    return torch.from_numpy(value if usable else value.copy()).permute(2, 0, 1)


def _stacked(pictures: list[torch.Tensor]) -> torch.Tensor:
    first = pictures[0]
    for each in pictures:
        if each.shape != first.shape or each.dtype != first.dtype:
            raise DataError(
                f"pictures of a batch differ: {first.dtype} {tuple(first.shape)} and {each.dtype} {tuple(each.shape)}; "
                "bring them to one size in the transform"
            )
    if any(each.requires_grad for each in pictures):
        return to_format(torch.stack(pictures), "channels_last")
    channels, height, width = first.shape
    rows = empty_rows((len(pictures), height, width, channels), first)
    batch = rows.permute(0, 3, 1, 2)
    if all(each.stride() == (1, width * channels, channels) for each in pictures):
        torch.stack([each.permute(1, 2, 0) for each in pictures], out=rows)
        return batch
    for number, each in enumerate(pictures):
        target = batch[number : number + 1]
        if not transpose(each[None], target):
            target.copy_(each[None])
    return batch
