"""Steps as data: the numbers of their parameters, and where among them the addresses of constants belong."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nhwc.errors import EngineError, SchemaError
from nhwc.inference.native import ABSOLUTE, Ref, Step
from nhwc.inference.saving.constants import Constants, Kept, spanned

_WORD = 8  # every field is so many bytes wide


@dataclass(frozen=True)
class ReadStep(Step):
    """A step from a file. places: the numbers among its parameters that hold addresses of constants."""

    places: tuple[int, ...] = ()

    def found(self) -> Iterator[tuple[int, int]]:
        """(bytes into the parameters, address)."""
        numbers = self.parameters.numbers
        return ((place * _WORD, numbers[place]) for place in self.places)


def written(step: Step, read: Sequence[torch.Tensor], constants: Constants) -> dict[str, Any]:
    """A step as JSON. read: constants that it may name besides its own."""
    addresses = []
    for offset, address in step.found() if isinstance(step, ReadStep) else _addresses(step.parameters):
        tensor = _holder(address, (*step.constants, *read))
        if tensor is None:
            raise EngineError(f"the engine cannot be saved: {step.label} reads memory that nobody holds")
        addresses.append([offset // _WORD, constants.memory(tensor), address - tensor.data_ptr()])
    return {
        "function": step.function,
        "label": step.label,
        "scratch_bytes": step.scratch_bytes,
        "numbers": list((ctypes.c_int64 * (ctypes.sizeof(step.parameters) // _WORD)).from_buffer_copy(step.parameters)),
        "addresses": addresses,
    }


def read(document: Mapping[str, Any], kept: Kept) -> Step:
    """The step, its constants where they lie now. Raises SchemaError for an address outside them."""
    numbers = document["numbers"]
    tensors = []

    class Parameters(ctypes.Structure):
        _fields_ = (("numbers", ctypes.c_int64 * len(numbers)),)

    parameters = Parameters((ctypes.c_int64 * len(numbers))(*numbers))
    for place, at, offset in document["addresses"]:
        tensor = kept.tensors[at]
        if not 0 <= offset < max(tensor.numel() * tensor.element_size(), 1):
            raise SchemaError(f"the saved engine is damaged: {document['label']} reads past its constants")
        parameters.numbers[place] = tensor.data_ptr() + offset
        tensors.append(tensor)
    places = tuple(place for place, _, _ in document["addresses"])
    given = document["function"], parameters, document["label"], document["scratch_bytes"]
    return ReadStep(*given, tuple(tensors), places)


def _addresses(value: Any, start: int = 0) -> Iterator[tuple[int, int]]:
    """(bytes into the parameters, address) of every reference to a constant, at the number that holds the address."""
    if isinstance(value, Ref):
        if value.base == ABSOLUTE and value.offset:
            yield start + Ref.offset.offset, value.offset
    elif isinstance(value, ctypes.Structure):
        for name, *_ in value._fields_:
            yield from _addresses(getattr(value, name), start + getattr(type(value), name).offset)
    elif isinstance(value, ctypes.Array) and issubclass(value._type_, ctypes.Structure | ctypes.Array):
        for place, each in enumerate(value):
            yield from _addresses(each, start + place * ctypes.sizeof(value._type_))


def _holder(address: int, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    for tensor in tensors:
        span = spanned(tensor)
        if tensor.data_ptr() <= address < tensor.data_ptr() + span.numel() * span.element_size():
            return tensor
    return None
