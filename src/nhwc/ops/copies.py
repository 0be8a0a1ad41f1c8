"""Copies inside an operator that change the format, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nhwc.model import InnerCopy, TensorMeta
from nhwc.strides import physical_order


@dataclass(frozen=True)
class Copied:
    """Bytes written by copies from one order of dimensions to another, and the operators that made them."""

    nbytes: int = 0
    names: tuple[str, ...] = ()

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.nbytes + other.nbytes, tuple(dict.fromkeys((*self.names, *other.names))))


def copied(copies: Sequence[InnerCopy]) -> Copied:
    """What of the copies changed the order of dimensions; those of an expanded source, and mere moves, do not count."""
    changing = [each for each in copies if _changes_order(each)]
    return Copied(
        sum(each.target.nbytes for each in changing), tuple(dict.fromkeys(each.operator for each in changing))
    )


def _changes_order(copy: InnerCopy) -> bool:
    if _is_expanded(copy.source) or _is_expanded(copy.target):
        return False
    shape = copy.source.shape
    return physical_order(shape, copy.source.strides) != physical_order(shape, copy.target.strides)


def _is_expanded(meta: TensorMeta) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(meta.shape, meta.strides, strict=True))
