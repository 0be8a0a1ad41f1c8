"""Operations, and the calls that torch runs, as JSON and back: functions by name, everything else as data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from nhwc.errors import EngineError
from nhwc.inference import operations
from nhwc.inference.graph import Call, Slot
from nhwc.inference.native import Activation
from nhwc.inference.saving.constants import Constants, Kept

_OPERATIONS: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        operations.Convolution,
        operations.InvertedResidual,
        operations.Linear,
        operations.Pool,
        operations.AdaptivePool,
        operations.Resample,
        operations.Term,
        operations.Elementwise,
        operations.Normalization,
        operations.Softmax,
        operations.Mean,
        operations.Copy,
        operations.Fused,
    )
}
#: Namespaces of operators that come with torch itself.
_OF_TORCH = frozenset({"aten", "prims", "prim", "quantized"})
_ATTRIBUTES = {
    torch.dtype: "dtype",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


class Writer:
    """Values as JSON. keeps_weights: whether the weights of operations are written, or their shapes alone."""

    def __init__(self, constants: Constants, keeps_weights: bool) -> None:
        self.constants, self.keeps_weights = constants, keeps_weights

    def work(self, work: operations.Operation | Call, *, weightless: bool) -> dict[str, Any]:
        """An operation or a call. weightless: a compiled step runs it, so that weights are for choosing anew alone."""
        if isinstance(work, Call):
            args = [self.value(each, work) for each in work.args]
            keywords = {key: self.value(each, work) for key, each in work.kwargs.items()}
            return {"call": target_name(work.target), "args": args, "kwargs": keywords}
        return self.operation(work, weightless=weightless and not self.keeps_weights)

    def operation(self, work: Any, *, weightless: bool) -> dict[str, Any]:
        """One of our own dataclasses, tensors in it as meta tensors where it is ``weightless``."""
        given = {each.name: getattr(work, each.name) for each in fields(work)}
        return {"is": type(work).__name__, **{name: self._field(each, weightless) for name, each in given.items()}}

    def _field(self, value: Any, weightless: bool) -> Any:
        if isinstance(value, torch.Tensor) and (weightless or value.is_meta):
            return {"meta": list(value.shape)}
        if type(value).__name__ in _OPERATIONS:
            return self.operation(value, weightless=weightless)
        if isinstance(value, tuple):
            return {"tuple": [self._field(each, weightless) for each in value]}
        return self.value(value, None)

    def value(self, value: Any, call: Call | None) -> Any:
        """Anything that an operator takes. Raises EngineError for what is no data."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if isinstance(value, Activation):
            return {"activation": int(value)}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Slot):
            return {"slot": value.index}
        if isinstance(value, torch.Tensor):
            return {"tensor": self.constants.add(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if type(value) in (list, immutable_list):
            return [self.value(each, call) for each in value]
        if type(value) is tuple:
            return {"tuple": [self.value(each, call) for each in value]}
        if type(value) in (dict, immutable_dict):
            return {"dict": [[key, self.value(each, call)] for key, each in value.items()]}
        for kind, name in _ATTRIBUTES.items():
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        taker = "an operation" if call is None else call.name
        raise EngineError(
            f"the engine cannot be saved: {taker} takes a value of type {type(value).__name__}, which is no plain data"
        )


class Reader:
    """What a Writer wrote, read back."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def work(self, written: Mapping[str, Any]) -> operations.Operation | Call:
        if "call" in written:
            args = tuple(self.value(each) for each in written["args"])
            keywords = {key: self.value(each) for key, each in written["kwargs"].items()}
            return Call(target_of(written["call"]), args, keywords)
        found: operations.Operation = self.value(written)
        return found

    def value(self, written: Any) -> Any:
        if isinstance(written, list):
            return [self.value(each) for each in written]
        if not isinstance(written, dict):
            return written
        if "is" in written:
            given = {name: self.value(each) for name, each in written.items() if name != "is"}
            return _OPERATIONS[written["is"]](**given)
        ((kind, held),) = written.items()
        match kind:
            case "tuple":
                return tuple(self.value(each) for each in held)
            case "dict":
                return {key: self.value(each) for key, each in held}
            case "tensor":
                return self.kept.tensor(held)
            case "dtype" | "layout" | "memory_format":
                return getattr(torch, held)
        plain: dict[str, Callable[[Any], Any]] = {
            "activation": Activation,
            "float": float,
            "slot": Slot,
            "device": torch.device,
            "meta": lambda shape: torch.empty(shape, device="meta"),
        }
        return plain[kind](held)


def target_name(target: Callable[..., Any]) -> str:
    """A function by name: an overload as torch prints it, or a function of Python's operator and math or of torch.

    Raises EngineError for an operator that no bare torch has, and for other functions.
    """
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
        if name.partition(".")[0] not in _OF_TORCH:
            raise EngineError(
                f"the engine cannot be saved: the model calls {name}, an operator of a library that is not torch's, "
                "which a saved engine could not find; build it where it runs"
            )
        return name
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    if module in {"operator", "_operator"} and getattr(operator, name, None) is target:
        return f"operator.{name}"
    if module == "math" and getattr(math, name, None) is target:
        return f"math.{name}"
    if getattr(torch, name, None) is target:
        return f"torch.{name}"
    raise EngineError(f"the engine cannot be saved: it calls {name or target!r}, which has no name that lasts")


def target_of(name: str) -> Callable[..., Any]:
    """The function of that name. Raises EngineError where this torch does not have it."""
    namespace, _, rest = name.partition(".")
    places: dict[str, Any] = {"operator": operator, "math": math, "torch": torch}
    found: Any = places.get(namespace)
    if found is None and namespace in _OF_TORCH:
        found = getattr(torch.ops, namespace)
    try:
        for part in rest.split("."):
            found = getattr(found, part)
    except AttributeError:
        found = None
    if not callable(found):
        raise EngineError(f"the saved engine calls {name}, which torch {torch.__version__} does not have")
    return found  # type: ignore[no-any-return]
