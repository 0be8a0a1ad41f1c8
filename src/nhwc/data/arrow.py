"""The memory of a picture of Pillow without a copy, through the C data interface of Apache Arrow.

Pillow has it from 11.2 on, for pictures in one block of memory (16 MiB unless it is told otherwise). ``tobytes`` serves
the others with three copies: of every row, of all rows together, and of those into memory that may be written to.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from PIL.Image import Image


class _Array(ctypes.Structure):
    """``struct ArrowArray``, as its specification has it."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def memory_of(picture: Image, pixel_bytes: int) -> torch.Tensor | None:
    """The bytes of ``picture`` as Pillow keeps them, uint8 (H * W, ``pixel_bytes``), to be read; None where it cannot.

    The tensor keeps the memory alive; the picture must not change while it is read.
    """
    try:
        _schema, capsule = picture.__arrow_c_array__()
    except (AttributeError, ValueError):  # an older Pillow, or memory in several blocks
        return None
    array = _Array.from_address(_pointer_of(capsule, b"arrow_array"))
    values = array.children[0].contents if array.n_children else array
    pixels = picture.width * picture.height
    if array.length != pixels or values.length != pixels * pixel_bytes or array.offset or values.offset:
        return None
    held: Any = (ctypes.c_uint8 * (pixels * pixel_bytes)).from_address(values.buffers[1])
    held.capsule = capsule  # gives the memory back when it goes
    return torch.frombuffer(held, dtype=torch.uint8).view(pixels, pixel_bytes)
