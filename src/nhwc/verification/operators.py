"""The first operator call at fault: every call of a run is repeated on the same values in contiguous memory and in
float64, and the answers are compared.

A call is repeated alone, so that what earlier calls did wrong is not held against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from nhwc.model import Call
from nhwc.proof import ResultError
from nhwc.recorder.dispatch import CallRecorder
from nhwc.recorder.modules import ModuleStack
from nhwc.recorder.run import first_line
from nhwc.recorder.state import StepGuard
from nhwc.recorder.storage import TensorReader
from nhwc.verification.judge import Baseline
from nhwc.verification.normalisation import move_statistics
from nhwc.verification.nudge import nudged
from nhwc.verification.run import Results
from nhwc.verification.statistics import sizes_in_call
from nhwc.verification.structure import changed, operands, shared_unsaid, snapshots, unwritten, written
from nhwc.verification.tape import is_random

#: Runs with nudged operands that tell what one operator is off by chance.
_NUDGES = 3
#: Their results hold whatever memory held before, or are no tensors.
_NO_VALUES = ("empty", "new_empty", "resize_", "resize_as_", "_local_scalar_dense", "detach", "lift_fresh", "alias")
_BY_STRIDES = {
    "as_strided": "it reads memory by strides written into the call, which find other elements in another format",
    "set_": "it takes raw memory and lays a shape over it, which finds other elements in another format",
}


@dataclass(frozen=True)
class Fault:
    """An operator call that answers differently in the other format.

    values: the operands before the call, contiguous, one for each of ``operands``; strides: as they were.
    """

    call: Call
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: dict[int, torch.Tensor]
    strides: dict[int, tuple[int, ...]]
    reason: str
    result: ResultError | None = None
    raised: bool = False
    by_strides: bool = False


class Comparer(CallRecorder):  # type: ignore[no-untyped-call]
    """Records a run and compares its calls until one is at fault.

    fault: the first call that answers differently. by_strides: the first call whose meaning depends on strides; it is
    to blame where no other is. raised: the call that raised. unsteady: operators that do not repeat their own answer.
    ignored: operators that draw random numbers unsaid.
    """

    def __init__(self, modules: ModuleStack, tensors: TensorReader, factor: float, ignored: Sequence[str]) -> None:
        super().__init__(modules, tensors, StepGuard(), None, inner=False)
        self.fault: Fault | None = None
        self.by_strides: Fault | None = None
        self.raised: Fault | None = None
        self.unsteady: list[str] = []
        self._factor = factor
        self._ignored = frozenset(ignored)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.fault is not None or not self._can_compare(func, args, kwargs):
            return super().__torch_dispatch__(func, types, args, kwargs)
        inputs = operands(args, kwargs)
        values = {id(tensor): _contiguous(tensor) for tensor in inputs}
        strides = {id(tensor): tuple(tensor.stride()) for tensor in inputs}
        bystanders = snapshots(unwritten(func, args, kwargs, inputs))
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except Exception as error:
            reason = f"it raises {type(error).__name__}: {first_line(error)}; in contiguous format it does not"
            if self._repeat(func, args, kwargs, values) is not None:
                self.raised = Fault(self.raw[-1].call, func, args, kwargs, values, strides, reason, raised=True)
            raise
        kind = _by_strides(func)
        # what a storage holds is the same for every repetition: there is nothing to compare
        raw = any(isinstance(value, torch.UntypedStorage) for value in args)
        found = (kind, None) if raw else self._difference(func, args, kwargs, values, result, bystanders)
        if found is not None:
            reason, error_ = found
            call = self.raw[-1].call
            fault = Fault(call, func, args, kwargs, values, strides, kind or reason, error_, by_strides=bool(kind))
            if kind:
                self.by_strides = self.by_strides or fault
            else:
                self.fault = fault
        return result

    def _can_compare(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not isinstance(func, torch._ops.OpOverload) or is_random(func, args, kwargs) or str(func) in self._ignored:
            return False
        name = func._schema.name.partition("::")[2]
        if func.namespace == "prim" or name.startswith(_NO_VALUES):
            return False
        tensors = operands(args, kwargs)
        return bool(tensors) and all(tensor.layout is torch.strided and not tensor.is_nested for tensor in tensors)

    def _repeat(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        values: dict[int, torch.Tensor],
        *,
        double: bool = False,
        nudge: int | None = None,
    ) -> _Repeated | None:
        """The call on contiguous copies of ``values``, None where it raises."""
        copies = {key: _copy(value, double, nudge) for key, value in values.items()}

        def copied(value: Any) -> Any:
            return copies[id(value)] if isinstance(value, torch.Tensor) else value

        own_args, own_kwargs = tree_map(copied, args), tree_map(copied, kwargs)
        inputs = operands(own_args, own_kwargs)
        bystanders = snapshots(unwritten(func, own_args, own_kwargs, inputs))
        try:
            result = func(*own_args, **own_kwargs)
        except Exception:  # noqa: BLE001 - a kernel refuses in its own way: there is then nothing to compare with
            return None
        if nudge is not None:
            with torch.no_grad():
                move_statistics(func, own_args, result, nudge, 1.0)
        return _Repeated(
            _outcome(func, own_args, own_kwargs, result),
            shared_unsaid(func, inputs, operands((result,), {})),
            any(changed(tensor, was) for tensor, was in bystanders.values()),
        )

    def _difference(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        values: dict[int, torch.Tensor],
        result: Any,
        bystanders: dict[int, tuple[torch.Tensor, torch.Tensor]],
    ) -> tuple[str, ResultError | None] | None:
        contiguous = self._repeat(func, args, kwargs, values)
        if contiguous is None:
            return None
        if any(changed(tensor, was) for tensor, was in bystanders.values()) and not contiguous.writes:
            return (
                "it writes an operand that its schema does not name as written; in contiguous format it does not",
                None,
            )
        if shared_unsaid(func, operands(args, kwargs), operands((result,), {})) and not contiguous.shares:
            return "its result lies in the memory of its operand, unsaid by its schema; in contiguous format not", None
        double = self._repeat(func, args, kwargs, values, double=True)
        reference = double.results if double is not None else None
        rounding = _coarsest(values.values())
        least = sizes_in_call(func, args)
        baseline = Baseline(contiguous.results, reference, self._factor, rounding, least, single=True)
        ours = _outcome(func, args, kwargs, result)
        for nudge in range(_NUDGES + 1):
            failed = next((each for each in baseline.judge(ours) if not each.passed), None)
            if failed is None:
                return None
            again = self._repeat(func, args, kwargs, values, nudge=nudge) if nudge < _NUDGES else None
            if again is not None:
                baseline.widen(again.results)
        second = self._repeat(func, args, kwargs, values)
        if second is not None and not all(each.passed for each in baseline.judge(second.results)):
            self.unsteady.append(str(func))
            return None
        reason = failed.reason if failed is not None else ""
        return f"on the same values, {failed.name if failed is not None else 'a result'}: {reason}", failed


@dataclass(frozen=True)
class _Repeated:
    results: Results
    shares: bool
    writes: bool


def _outcome(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Results:
    """What a call gives: its results, and the operands that it is meant to write."""
    outputs = operands((result,), {})
    meant = written(func, args, kwargs, operands(args, kwargs))
    known = {id(tensor) for tensor in outputs}
    named = [(f"result {place}", tensor) for place, tensor in enumerate(outputs)]
    named += [(f"written operand {place}", tensor) for place, tensor in enumerate(meant) if id(tensor) not in known]
    return Results({("output", name): tensor.detach() for name, tensor in named})


def _coarsest(values: Iterable[torch.Tensor]) -> float:
    """The greatest epsilon among the operands of a call: that of autocast counts only where it takes part."""
    return max((torch.finfo(value.dtype).eps for value in values if value.is_floating_point()), default=0.0)


def _by_strides(func: Any) -> str:
    name = func._schema.name.partition("::")[2]
    return next((reason for start, reason in _BY_STRIDES.items() if name.startswith(start)), "")


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The values in canonical contiguous strides, whatever the strides of dimensions of size 1."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def _copy(value: torch.Tensor, double: bool, nudge: int | None) -> torch.Tensor:
    copy = _contiguous(value)
    if not copy.is_floating_point():
        return copy
    if nudge is not None:
        return nudged(copy, nudge)
    return copy.double() if double else copy
