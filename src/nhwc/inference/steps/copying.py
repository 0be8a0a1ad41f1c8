"""Copies between strides: formats, slices, shuffles, and padding around them, by ``engine/copy.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from nhwc.inference.native import Placed, Ref, Step
from nhwc.inference.operations import Copy
from nhwc.inference.steps.registry import Candidate, Request, algorithm
from nhwc.inference.steps.strided import collapsed, is_overlapping

_MOST_DIMENSIONS = 6
_MOST_BOXES = 7


class Box(ctypes.Structure):
    """Elements that are copied, or filled; see copy.cpp. Offsets and strides in elements."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("is_fill", "across", "from_offset", "to_offset")],
        *[(name, ctypes.c_int64 * _MOST_DIMENSIONS) for name in ("size", "from", "to")],
    ]


class Parameters(ctypes.Structure):
    """Copies of copy.cpp."""

    _fields_ = [
        ("x", Ref),
        ("y", Ref),
        ("value", ctypes.c_double),
        ("boxes", ctypes.c_int64),
        ("box", Box * _MOST_BOXES),
    ]


@algorithm(Copy)
def strided(request: Request) -> Iterator[Candidate]:
    """Every copy of up to six dimensions after neighbours are merged; negative padding cuts off. No epilogues."""
    assert isinstance(request.operation, Copy)
    [x], y = request.inputs, request.output
    if request.has_epilogue or is_overlapping(y):
        return
    around = _around(request.operation, len(y.shape))
    if around is None or y.shape != tuple(sum(each) for each in zip(x.shape, *zip(*around, strict=True), strict=True)):
        return
    boxes = _boxes(x, y, around)
    found = [each for each in boxes if each is not None]
    if len(found) < len(boxes) or len(boxes) > _MOST_BOXES:
        return
    array = (Box * _MOST_BOXES)(*found)
    parameters = Parameters(x.ref, y.ref, request.operation.value, len(found), array)
    yield Candidate("copy", lambda: Step("copy", parameters, "copy"))


def _around(copy: Copy, rank: int) -> tuple[tuple[int, int], ...] | None:
    """What is added before and after each dimension; spatial ones follow samples and channels."""
    if not copy.padding:
        return ((0, 0),) * rank
    return ((0, 0), (0, 0), *copy.padding) if len(copy.padding) == rank - 2 else None


def _boxes(x: Placed, y: Placed, around: Sequence[tuple[int, int]]) -> list[Box | None]:
    """The values, then what surrounds them: per dimension what lies before and after, within those before it."""
    inside = [(max(before, 0), size - max(after, 0)) for (before, after), size in zip(around, y.shape, strict=True)]
    start = [max(-before, 0) for before, _ in around]
    boxes = [_box(y, inside, x.strides, sum(a * b for a, b in zip(start, x.strides, strict=True)))]
    for dimension, size in enumerate(y.shape):
        for low, high in ((0, inside[dimension][0]), (inside[dimension][1], size)):
            if low < high:
                ranges = [*inside[:dimension], (low, high), *((0, each) for each in y.shape[dimension + 1 :])]
                boxes.append(_box(y, ranges))
    return boxes


def _box(
    y: Placed, ranges: Sequence[tuple[int, int]], strides: Sequence[int] | None = None, offset: int = 0
) -> Box | None:
    """Copied with the source's strides, or filled; None where there are too many dimensions."""
    view = collapsed([max(high - low, 0) for low, high in ranges], y.strides, strides or [0] * len(ranges))
    missing = _MOST_DIMENSIONS - len(view.sizes)
    if missing < 0:
        return None
    to_offset = sum(low * stride for (low, _), stride in zip(ranges, y.strides, strict=True))
    to, source = view.strides
    across = -1
    if strides is not None and to[-1] == 1 and source[-1] != 1 and 1 in source:
        across = missing + source.index(1)
    arrays = [
        (ctypes.c_int64 * _MOST_DIMENSIONS)(*[fill] * missing, *each)
        for fill, each in ((1, view.sizes), (0, source), (0, to))
    ]
    return Box(int(strides is None), across, offset, to_offset, *arrays)
