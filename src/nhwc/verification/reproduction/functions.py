"""The source of a Python function with everything that it needs, as code that stands alone."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from typing import Any

#: What a standalone file may import: it must run where torch and the standard library are.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class NotAloneError(Exception):
    """The function needs something that cannot be written down."""


def standalone(function: types.FunctionType) -> tuple[str, str]:
    """Code that defines ``function``, and its name there. Raises NotAloneError where it cannot stand alone.

    Modules that it names are imported, constants written out, other functions defined the same way; decorators go.
    """
    code: dict[str, str] = {}
    name = "kernel" if function.__name__ == "<lambda>" else function.__name__
    _define(function, name, code, set())
    imports = sorted(text for text in code.values() if text.startswith(("import ", "from ")))
    rest = [text for text in code.values() if text not in imports]
    return "\n\n\n".join(["\n".join(imports), *rest] if imports else rest), name


def _define(function: types.FunctionType, name: str, code: dict[str, str], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    definition = _definition(function)
    for needed, value in _needs(function).items():
        if needed in code or value is function:
            continue
        _write(needed, value, code, seen)
    if isinstance(definition, ast.Lambda):
        code[name] = f"{name} = {ast.unparse(definition)}"
        return
    own = definition.name
    definition.decorator_list = []
    code[own] = ast.unparse(definition)
    if own != name:
        code[name] = f"{name} = {own}"


def _definition(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        raise NotAloneError(f"the source of {function.__qualname__} cannot be read") from error
    wanted = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [node for node in ast.walk(tree) if isinstance(node, wanted)]
    if not found or (wanted is ast.Lambda and len(found) != 1):
        raise NotAloneError(f"the source of {function.__qualname__} cannot be told apart")
    return found[0]


def _needs(function: types.FunctionType) -> dict[str, Any]:
    """Every name from outside that the function uses, with its value."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError as error:
            raise NotAloneError(f"{function.__qualname__} uses {name}, which has no value yet") from error
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            found[name] = function.__globals__[name]
        elif not hasattr(builtins, name) and name in _loaded(function.__code__):
            raise NotAloneError(f"{function.__qualname__} uses {name}, which is not defined")
    return found


def _global_names(code: types.CodeType) -> set[str]:
    names = set(_loaded(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _loaded(code: types.CodeType) -> set[str]:
    import dis

    return {str(each.argval) for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}


def _write(name: str, value: Any, code: dict[str, str], seen: set[int]) -> None:
    if isinstance(value, types.ModuleType):
        if name != "torch":  # the file imports that itself
            code[name] = f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
    elif isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value)):
        code[name] = f"{name} = {value!r}"
    elif isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] != "torch":
        _define(value, name, code, seen)
    elif hasattr(value, "__module__") and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        if not str(value.__module__).startswith(("torch", "math", "typing", "functools", "collections", "itertools")):
            raise NotAloneError(f"{name} comes from {value.__module__}")
        code[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    else:
        raise NotAloneError(f"{name} is a {type(value).__name__}, which cannot be written down")
