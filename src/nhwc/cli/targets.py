"""TARGET → a model with its inputs: the name of a known model, ``package.module:callable`` or ``file.py:callable``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from nhwc.cli import zoo
from nhwc.cli.exits import RaisingTargetError, one_line
from nhwc.cli.recipes import Recipe
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """What is audited.

    inputs, keywords: the arguments that came with the model; None where it brought none.
    recipe: what it takes, for models known by name.
    """

    name: str
    model: nn.Module
    inputs: tuple[object, ...] | None = None
    keywords: Mapping[str, object] = field(default_factory=dict)
    recipe: Recipe | None = None


def check(text: str) -> None:
    """What can be said of TARGET before torch is imported. Raises TargetError where its file or package is missing."""
    place, colon, _ = text.rpartition(":")
    if colon and _is_file(place):
        if not Path(place).is_file():
            raise TargetError(f"no file {place}")
    elif colon:
        _find(place.partition(".")[0], place)  # looking for a module inside a package would import the package
    elif text.endswith(".py") or Path(text).is_file():
        raise TargetError(f"{text} names no callable in the file; write {text}:NAME")
    elif "/" in text:
        raise TargetError(f"{text} is neither a model's name nor file.py:callable; did you mean {Path(text).name}?")


def load(text: str) -> Target:
    """Find and build TARGET. Raises TargetError, in one sentence, wherever that fails."""
    check(text)
    if ":" in text:
        return _called(text, _found(text), {})
    model, recipe = zoo.load(text)
    return Target(text, model, recipe=recipe)


def _found(text: str) -> object:
    place, _, name = text.rpartition(":")
    module = _run_file(Path(place)) if _is_file(place) else _import(place)
    return _attribute(module, place, name)


@dataclass(frozen=True)
class Classifier:
    """build: makes the model for a number of classes. size: side of the images it is usually given, or None."""

    build: Callable[[int], nn.Module]
    size: int | None = None


def classifier(text: str) -> Classifier:
    """Find TARGET as a model to train: known by name, or a callable, which gets ``num_classes`` where it takes that.

    Raises TargetError, in one sentence, here or while building.
    """
    check(text)
    _, colon, _ = text.rpartition(":")
    if not colon:
        return Classifier(*zoo.classifier(text))
    found = _found(text)
    return Classifier(lambda classes: _called(text, found, {"num_classes": classes}).model)


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _run_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # As `python file.py` has it: files beside it can be imported, and what it pickles finds it again.
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules.setdefault(path.stem, module)
    loader = spec.loader
    _guarded(str(path), lambda: loader.exec_module(module))
    return module


def _find(name: str, whole: str) -> None:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise TargetError(f"no module {whole!r} among the installed packages or below {Path.cwd()}")


def _import(name: str) -> ModuleType:
    _find(name, name)
    return _guarded(f"importing {name}", lambda: importlib.import_module(name))


def _attribute(module: ModuleType, place: str, name: str) -> object:
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(name, offered, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(offered[:8]) or 'no callable'}"
        raise TargetError(f"{place} has no {name!r}; {hint}") from error


def _called(text: str, found: object, offered: Mapping[str, object]) -> Target:
    """The target that ``found`` is or makes, called with those of the offered keywords that it takes."""
    from torch import nn

    if isinstance(found, nn.Module):
        return Target(text, found)
    if not callable(found):
        raise TargetError(f"{text} is {_kind(found)}, not a callable that returns a module")
    given = {name: value for name, value in offered.items() if _takes(found, name)}
    needed = [name for name in _needed(found) if name not in given]
    if needed:
        lacking = [name for name in offered if name not in given]
        named = f"name the argument for it {lacking[0]}, or " if lacking else ""
        taken = "takes none" if not offered else f"takes {' and '.join(offered)} alone"
        called_with = f"with {' and '.join(offered)} alone" if offered else "without arguments"
        raise TargetError(
            f"{text} is called {called_with}, but needs {' and '.join(needed)}; "
            f"{named}wrap it in a function that {taken} and passes what it needs"
        )
    made = _guarded(text, lambda: found(**given))
    if isinstance(made, nn.Module):
        return Target(text, made)
    if isinstance(made, tuple) and made and isinstance(made[0], nn.Module):
        return _with_inputs(text, made)
    raise TargetError(f"{text} returned {_kind(made)}; it must return a module, or a module and its inputs")


def _needed(function: Callable[..., object]) -> list[str]:
    """Names of the arguments without which ``function`` cannot be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []  # a builtin without a signature: calling it is the only way to know
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in variadic]


def _takes(function: Callable[..., object], name: str) -> bool:
    """Whether it can be called with that keyword; ``**options`` alone do not say so."""
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _with_inputs(text: str, made: tuple[nn.Module, object]) -> Target:
    if len(made) != 2:
        raise TargetError(
            f"{text} returned a module and {len(made) - 1} more values; put its inputs in one tuple: (module, (x, y))"
        )
    model, inputs = made
    if isinstance(inputs, Mapping):
        return Target(text, model, (), dict(inputs))
    return Target(text, model, inputs if isinstance(inputs, tuple) else (inputs,))


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _guarded(what: str, run: Callable[[], T]) -> T:
    """Run the user's code; what it raises becomes one sentence."""
    try:
        return run()
    except (Exception, SystemExit) as error:
        raise RaisingTargetError(f"{what} raised {type(error).__name__}: {one_line(error)}") from error
