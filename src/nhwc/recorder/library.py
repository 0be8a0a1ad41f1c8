"""Level three: copies that a library makes inside one operator.

On the CPU oneDNN's verbose output lists every primitive it runs; ``torch.backends.mkldnn.verbose`` switches it on.
The line format was read from oneDNN 3.12 (torch 2.14):
    onednn_verbose,v1,primitive,exec,cpu,reorder,<impl>,undef,src:f32::blocked:abcd::f0 dst:...,<attr>,,2x8x16x16,0.017
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from nhwc.model import Reorder

PREFIX = b"onednn_verbose,"
_BYTES = {"f32": 4, "s32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "f64": 8}


def available() -> bool:
    """Whether this torch runs oneDNN."""
    return torch.backends.mkldnn.is_available()


@contextlib.contextmanager
def verbose() -> Iterator[None]:
    """Switch oneDNN's verbose output on, and afterwards back to what the environment asked for."""
    asked = os.environ.get("ONEDNN_VERBOSE", os.environ.get("DNNL_VERBOSE", "0"))
    torch._C._verbose.mkldnn_set_verbose(1)
    try:
        yield
    finally:
        torch._C._verbose.mkldnn_set_verbose(int(asked) if asked.isdigit() else 0)


def is_verbose_line(line: bytes) -> bool:
    """Whether a caught line is oneDNN's and was asked for by us alone."""
    return line.startswith(PREFIX) and not os.environ.get("ONEDNN_VERBOSE", os.environ.get("DNNL_VERBOSE"))


def _descriptor(text: str, which: str) -> tuple[str, str]:
    """(data type, format tag) of the "src:" or "dst:" memory descriptor."""
    for part in text.split(" "):
        fields = part.split(":")
        if fields[0] == which and len(fields) >= 5:
            return fields[1], fields[4]
    return "", ""


def parse_reorder(line: bytes) -> Reorder | None:
    """A Reorder from one verbose line, None for any other line, and for vectors, which have no format."""
    fields = line.decode("ascii", "replace").strip().split(",")
    if len(fields) < 10 or "exec" not in fields or "reorder" not in fields:
        return None
    memory = next((field for field in fields if field.startswith("src:")), "")
    dims = [int(size) for size in fields[-2].split("x") if size.isdigit()]
    if len(dims) < 3:
        return None
    source_type, source_format = _descriptor(memory, "src")
    target_type, target_format = _descriptor(memory, "dst")
    count = 1
    for size in dims:
        count *= size
    try:
        ms = float(fields[-1])
    except ValueError:
        ms = None
    nbytes = count * _BYTES.get(target_type or source_type, 4)
    return Reorder("oneDNN", "", source_format, target_format, tuple(dims), nbytes, ms)


def same_shape(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Grouped weights have their groups as a dimension of their own: (g, o/g, i, h, w) for (o, i, h, w)."""
    return dims == shape or (len(dims) == len(shape) + 1 and (dims[0] * dims[1], *dims[2:]) == shape)


def name_operand(reorder: Reorder, shapes: dict[str, tuple[int, ...]]) -> Reorder:
    """Fill in the operand ("src", "weights", "dst") whose shape the reorder has; a weight wins over equals."""
    for operand in ("weights", "src", "dst"):
        if operand in shapes and same_shape(reorder.shape, shapes[operand]):
            return Reorder(
                reorder.library,
                operand,
                reorder.source_format,
                reorder.target_format,
                reorder.shape,
                reorder.nbytes,
                reorder.ms,
            )
    return reorder


def between(output: bytes, start: int, end: int) -> list[Reorder]:
    """The reorders printed between two positions of the caught output."""
    found = (parse_reorder(line) for line in output[start:end].splitlines() if line.startswith(PREFIX))
    return [reorder for reorder in found if reorder is not None]
