"""What a model computes, as one hash: its modules' code and settings, the shapes of its weights, never their values.

Code is followed from a class's methods through the functions and classes that they name, as far as names tell; code of
torch itself stands by its name, since torch's version belongs to the key. What names do not tell, such as a function
found in a table by its text, can change without changing the hash: whoever uses it compares results as well.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import types
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: What a module's own dictionary holds beside its settings; weights and submodules are gone through by themselves.
_PARTS = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
_PLAIN = (int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout)
_TREES = (list, tuple, deque, set, frozenset, dict, OrderedDict, types.MappingProxyType)
#: By the package that defines them: their code does not change without torch's or Python's version.
_FIXED = frozenset({"torch", "typing", "functools", "collections", "math", "operator", "abc", "enum"})
_WRITTEN_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_COMPILED = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


class _UnknownError(Exception):
    """Something whose content cannot be told."""


def fingerprint(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """A hash of the model and of the shapes of its arguments; None where something in it cannot be told apart."""
    told = _Teller()
    try:
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        told.text(str(spec), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"))
        for each in leaves:
            told.weight(each) if isinstance(each, torch.Tensor) else told.tell(each)
        told.tell(model)
    except (_UnknownError, RecursionError):
        return None
    return told.hash.hexdigest()


class _Teller:
    """Tells a hash of values, each object once: a second time its number stands for it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # numbers go by address

    def text(self, *values: object) -> None:
        self.hash.update("\x1f".join(map(str, values)).encode("utf-8", "surrogatepass") + b"\x1e")

    def tell(self, value: Any) -> None:
        """Anything that a module, a function or an argument may hold. Raises _UnknownError."""
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            self.text(type(value).__name__, repr(value))
        elif not self._is_told(value):
            self._tell_new(value)

    def weight(self, tensor: torch.Tensor) -> None:
        """A tensor by its form alone, and which of those before it is the same."""
        if not self._is_told(tensor):
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
                raise _UnknownError
            form = tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
            self.text(type(tensor).__name__, *form, tensor.is_neg(), tensor.is_conj())

    def _is_told(self, value: object) -> bool:
        if id(value) in self._numbers:
            self.text("again", self._numbers[id(value)])
            return True
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        return False

    def _tell_new(self, value: Any) -> None:
        if isinstance(value, torch.nn.Module):
            self._module(value)
        elif isinstance(value, _TREES):
            self._tree(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._all("method", value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            self._all("partial", value.func, value.args, value.keywords)
        elif isinstance(value, staticmethod | classmethod):
            self._all(type(value).__name__, value.__func__)
        elif isinstance(value, property):
            self._all("property", value.fget, value.fset)
        elif isinstance(value, enum.Enum):
            self.text("enum", type(value).__qualname__, value.name)
        elif isinstance(value, types.ModuleType):
            self.text("package", value.__name__)
        elif _name_of(value) is not None:
            self.text("named", _name_of(value))
        else:
            self._object(value)

    def _all(self, *values: Any) -> None:
        for each in values:
            self.tell(each)

    def _tree(self, value: Any) -> None:
        self.text(type(value).__qualname__, len(value))
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        for each in value:
            self.tell(each)
        if isinstance(value, Mapping):
            self._all(*value.values())

    def _module(self, module: torch.nn.Module) -> None:
        self.tell(type(module))
        for name, value in vars(module).items():
            if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")):
                if value:
                    raise _UnknownError  # a hook may do anything
            elif name not in _PARTS:
                self.text(name)
                self.tell(value)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            self.text(name)
            self.weight(tensor) if tensor is not None else self.text(None)
        for name, child in module._modules.items():
            self.text(name)
            self.tell(child)

    def _class(self, kind: type) -> None:
        self.text("class", kind.__module__, kind.__qualname__)
        if kind.__module__.partition(".")[0] in _FIXED or not kind.__flags__ & _WRITTEN_IN_PYTHON:
            return
        self._all(*kind.__bases__)
        for name, value in vars(kind).items():
            if callable(value) or isinstance(value, (staticmethod, classmethod, property, *_PLAIN, *_TREES)):
                self.text(name)
                if not name.startswith("__") or isinstance(value, types.FunctionType):
                    self.tell(value)

    def _function(self, function: types.FunctionType) -> None:
        self.text("function", function.__module__, function.__qualname__)
        if (function.__module__ or "").partition(".")[0] in _FIXED:
            return
        self._all(function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.tell(cell.cell_contents)
            except ValueError:  # not filled yet
                self.text("empty")
        self._code(function.__code__, function.__globals__)

    def _code(self, code: types.CodeType, names: Mapping[str, Any]) -> None:
        self.text(code.co_code.hex(), code.co_names, code.co_varnames, code.co_argcount, code.co_flags)
        for each in code.co_consts:
            if isinstance(each, types.CodeType):
                self._code(each, names)
            else:
                self.tell(each)
        for name in code.co_names:
            if name in names:
                self._named(name, names[name], code.co_names)

    def _named(self, name: str, value: Any, others: Sequence[str]) -> None:
        """What code reads by a global name; of a package, what it may read of it."""
        self.text(name)
        if not isinstance(value, types.ModuleType):
            self.tell(value)
        elif value.__name__.partition(".")[0] not in _FIXED:
            others = [each for each in others if each != name]
            for other in others:
                held = None if other.startswith("__") else inspect.getattr_static(value, other, None)
                if held is not None:
                    self._named(other, held, others)

    def _object(self, value: Any) -> None:
        held = getattr(value, "__dict__", None)
        if held is None or isinstance(value, torch.Tensor):
            raise _UnknownError  # a tensor that is no weight is a constant of the graph
        self.tell(type(value))
        self.tell(dict(held))


def _name_of(value: Any) -> str | None:
    """The name of a function that is compiled, or of an operator; None for anything else."""
    if isinstance(value, _COMPILED):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(value)
    return None
