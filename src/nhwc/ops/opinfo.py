"""Samples from torch's own database of operators.

Private interface, read from torch 2.11 to 2.14: ``torch.testing._internal.common_methods_invocations.op_db``, a list of
OpInfo (``formatted_name``, ``op``, ``supports_dtype``, ``supports_autograd``, ``sample_inputs``), and the samples'
``input``, ``args``, ``kwargs``. It needs the package expecttest. Importing it forbids setting torch.backends' flags in
this process, which ``database()`` undoes through ``torch.backends.flags_frozen``. ``missing()`` says why it is not
there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from nhwc.ops.case import Case, tiled
from nhwc.ops.shapes import EDGES, LARGE, USUAL

_RANK_IN_NAME = re.compile(r"(?<!atleast_)([123])d")
_LOOKED_AT = 2000
_MOST_CASES = 16
_MOST_WIDENED = 4
_MOST_GROWTH = 8
_MAY_SET_FLAGS = "__allow_nonbracketed_mutation_flag"
#: They answer with memory as it is, or read it by strides of their own: their values differ by right.
NOT_COMPARABLE = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_ "
    "as_strided as_strided_copy as_strided_scatter".split()
)


def database() -> Sequence[Any]:
    """Every OpInfo. Raises what importing it raises where it is not installed, or is another."""
    settings = torch.backends.flags_frozen.__globals__  # torch.backends itself is a stand-in without these names
    before = settings.get(_MAY_SET_FLAGS)
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    finally:
        if before is not None:
            settings[_MAY_SET_FLAGS] = before

    found: Sequence[Any] = op_db
    return found


def missing() -> str:
    """Why the database is not there, as a sentence; "" where it is."""
    try:
        database()
    except ModuleNotFoundError as error:
        return (
            f"torch's own samples are left out, since the package {error.name} is not installed (pip install "
            "'nhwc[ops]'): the table holds nhwc's own samples alone"
        )
    except Exception as error:  # noqa: BLE001 - private: another torch may fail in any way
        reason = " ".join(str(error).split())[:200]
        return (
            f"torch's own samples are left out, since importing them raised {type(error).__name__} ({reason}): the "
            "table holds nhwc's own samples alone"
        )
    return ""


class DatabaseOperator:
    """An operator of the database. Samples without a picture or volume are widened to one where the operator runs."""

    group = "operator"

    def __init__(self, info: Any) -> None:
        self._info = info
        self.name = str(info.formatted_name).replace("nn_functional_", "nn.functional.")
        self.is_comparable = info.name not in NOT_COMPARABLE

    def cases(self, dims: int, dtype: torch.dtype, device: str) -> list[Case]:
        """Up to 16 samples for pictures (dims 2) or volumes (dims 3), spread over all that there are."""
        named = _RANK_IN_NAME.search(self.name)
        if named is not None and named[1] != str(dims):
            return []  # an unbatched volume is no picture
        if not self._info.supports_dtype(dtype, torch.device(device).type):
            return []
        every = list(itertools.islice(self._samples(dtype, device), _LOOKED_AT))
        found = [case for case in every if case.dims == dims]
        if found:
            step = max(1, len(found) // _MOST_CASES)
            return found[::step][:_MOST_CASES]
        widened = (_resized(case, USUAL[dims]) for case in every)
        running = (case for case in widened if case is not None and _answers(case, dims + 2))
        return list(itertools.islice(running, _MOST_WIDENED))

    def edges(self, cases: Sequence[Case], dims: int) -> Iterator[tuple[str, Case]]:
        """The first case with other shapes: one channel, one pixel, ...; those that the operator refuses too."""
        for label, shape in EDGES[dims].items():
            case = _resized(cases[0], shape)
            if case is not None:
                yield label, case

    def large(self, cases: Sequence[Case], dims: int) -> Case | None:
        """The first case at a representative size; None where its arguments do not allow that."""
        case = _resized(cases[0], LARGE[dims])
        return case if case is not None and _grows_evenly(cases[0]) else None

    def _samples(self, dtype: torch.dtype, device: str) -> Iterator[Case]:
        torch.manual_seed(0)
        for sample in self._info.sample_inputs(device, dtype, requires_grad=bool(self._info.supports_autograd)):
            plain = frozenset({1}) if "grid_sample" in self.name else frozenset()
            case = Case(self._info.op, (sample.input, *sample.args), sample.kwargs, plain)
            if all(type(tensor) is torch.Tensor and tensor.layout == torch.strided for tensor in case.tensors):
                yield case


def _resized(case: Case, shape: Sequence[int]) -> Case | None:
    """The case with its tensors of one shape brought to another; None where they have several shapes, or none."""
    sizes = {tuple(tensor.shape) for tensor in case.tensors if tensor.dim() > 0}
    if len(sizes) != 1 or not any(tensor.is_floating_point() and tensor.dim() for tensor in case.tensors):
        return None
    if 0 in next(iter(sizes)):
        return None
    return case.changed(lambda tensor: tiled(tensor, shape) if tensor.dim() else tensor)


def _answers(case: Case, rank: int) -> bool:
    """Whether a widened case runs and answers with a tensor of its rank."""
    try:
        with torch.no_grad():
            result = case.changed(torch.Tensor.detach)()
    except Exception:  # noqa: BLE001 - whatever an operator raises on a shape that it does not take
        return False
    results = [result] if isinstance(result, torch.Tensor) else list(result) if isinstance(result, tuple) else []
    return any(isinstance(each, torch.Tensor) and each.dim() == rank for each in results)


def _grows_evenly(case: Case) -> bool:
    """Whether the result is about as large as the input: at a real size a product of both would not fit into memory."""
    try:
        with torch.no_grad():
            result = case.changed(torch.Tensor.detach)()
    except Exception:  # noqa: BLE001 - the verdict is made elsewhere
        return False
    written = sum(each.numel() for each in (result if isinstance(result, tuple | list) else [result]) if _counts(each))
    return bool(written <= _MOST_GROWTH * max((each.numel() for each in case.tensors), default=1))


def _counts(value: object) -> bool:
    return isinstance(value, torch.Tensor)
