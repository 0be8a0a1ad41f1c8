"""Level three: copies that a library makes inside one operator.

On the CPU oneDNN's verbose output lists every primitive it runs; ``torch.backends.mkldnn.verbose`` switches it on.
The line formats were read from oneDNN 3.0 to 3.12 (torch 2.14 has the last), with the older ones before the first:
    onednn_verbose,v1,primitive,exec,cpu,reorder,<impl>,undef,src:f32::blocked:abcd::f0 dst:...,<attr>,,2x8x16x16,0.017
    onednn_verbose,exec,cpu,reorder,<impl>,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:acdb:f0,,,2x8x16x16,0.017
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from nhwc.model import Reorder

PREFIX = b"onednn_verbose,"
_LINE = re.compile(rb"onednn_verbose,[^\n]*(\n|$)")
_BYTES = {"f64": 8, "f32": 4, "s32": 4, "tf32": 4, "bf16": 2, "f16": 2}
#: "src:f32::blocked:abcd::f0", and "src_f32::blocked:abcd:f0" as it was before: data type and format tag.
_DESCRIPTOR = re.compile(r"^(?P<which>src|dst)[:_](?P<type>\w+):(?P<flags>[^:]*):\w+:(?P<tag>[^:]*)")


def available() -> bool:
    """Whether this torch runs oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def _asked() -> str:
    return os.environ.get("ONEDNN_VERBOSE", os.environ.get("DNNL_VERBOSE", ""))


@contextlib.contextmanager
def verbose() -> Iterator[None]:
    """Switch oneDNN's verbose output on, and afterwards back to what the environment asked for."""
    asked = _asked()
    level = int(asked) if asked.isdigit() else int(asked not in ("", "none"))
    torch._C._verbose.mkldnn_set_verbose(1)
    try:
        yield
    finally:
        torch._C._verbose.mkldnn_set_verbose(level)


def without_verbose_lines(output: bytes) -> bytes:
    """Caught output without oneDNN's lines, unless the environment asked for them too."""
    return output if _asked() not in ("", "0", "none") else _LINE.sub(b"", output)


def parse_reorder(line: bytes) -> Reorder | None:
    """A Reorder from one verbose line, None for any other line and for vectors, which have no format.

    >>> parse_reorder(b"onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    ...               b"src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,2x8x16x16,0.017").target_format
    'acdb'
    """
    fields = line.decode("ascii", "replace").strip().split(",")
    if len(fields) < 8 or "exec" not in fields or "reorder" not in fields or line[: len(PREFIX)] != PREFIX:
        return None
    memory = next((field for field in fields if re.match("src[:_]", field)), "")
    found = [match for part in memory.split(" ") if (match := _DESCRIPTOR.match(part))]
    described = {match["which"]: (match["type"], match["tag"]) for match in found}
    if set(described) != {"src", "dst"} or not re.fullmatch(r"\d+(x\d+)+", fields[-2]):
        return None
    dims = tuple(int(size) for size in fields[-2].split("x"))
    count = 1
    for size in dims:
        count *= size
    try:
        ms: float | None = float(fields[-1])
    except ValueError:
        ms = None
    (_, source_format), (target_type, target_format) = described["src"], described["dst"]
    return Reorder("oneDNN", "", source_format, target_format, dims, count * _BYTES.get(target_type, 1), ms)


def same_shape(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether oneDNN's ``dims`` are torch's ``shape``: grouped weights have their groups as a dimension of their own,
    (g, o/g, i, h, w) for (o, i, h, w), and a 1-D convolution runs as a 2-D one of height 1."""
    if len(shape) == 3 and len(dims) > 3:
        shape = (*shape[:2], 1, shape[2])
    return dims == shape or (len(dims) == len(shape) + 1 and (dims[0] * dims[1], *dims[2:]) == shape)


def name_operand(reorder: Reorder, shapes: Mapping[str, tuple[int, ...]], *, transposed: bool = False) -> Reorder:
    """Fill in the operand ("src", "weights", "dst") whose shape the reorder has; a weight wins over equals.

    transposed: torch keeps the weights of a transposed convolution input channels first, oneDNN output channels first.
    """
    for operand in ("weights", "src", "dst"):
        if operand not in shapes:
            continue
        swapped = _swapped(reorder.shape, shapes[operand]) if transposed and operand == "weights" else reorder.shape
        if same_shape(reorder.shape, shapes[operand]) or same_shape(swapped, shapes[operand]):
            return replace(reorder, operand=operand)
    return reorder


def _swapped(dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The two channel dimensions of weights exchanged; they come after the groups where there are any."""
    first = max(len(dims) - max(len(shape), 4), 0)
    swapped = list(dims)
    swapped[first : first + 2] = reversed(swapped[first : first + 2])
    return tuple(swapped)


def between(output: bytes, start: int, end: int) -> list[Reorder]:
    """The reorders printed between two positions of the caught output; lines that cannot be read are left out."""
    found = (parse_reorder(line) for line in output[start:end].splitlines() if line.startswith(PREFIX))
    return [reorder for reorder in found if reorder is not None]
