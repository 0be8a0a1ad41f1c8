"""How an operator is made known again in a file of its own.

Private interfaces, read from torch 2.11 to 2.14: torch._library.custom_ops.OPDEFS and the ``_init_fn`` and
``_backend_fns`` of its CustomOpDef; the "registered at" lines of torch._C._dispatch_dump.
"""

from __future__ import annotations

import ast
import gc
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nhwc.verification.reproduction.functions import NotAloneError, standalone

_TORCHS_OWN = ("aten", "prims", "mkldnn", "quantized", "quantized_decomposed")
_DEVICE_KEYS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS"}


def registrations(func: Any, device: str) -> list[str]:
    """Ways to make ``func`` known, the best first, each as code; one empty string where torch has it from the start."""
    namespace = func.namespace
    if namespace in _TORCHS_OWN:
        return [*_embedded(func, device), *_by_file(func)] if is_overridden(func) else [""]
    if namespace == "torchvision":
        return ["import torchvision"]
    found = [*_embedded(func, device), *_by_file(func)]
    libraries = sorted(torch.ops.loaded_libraries)
    if libraries:
        found.append("\n".join(f"torch.ops.load_library({path!r})" for path in libraries))
    return found


def is_overridden(func: Any) -> bool:
    """Whether Python code of somebody else's registered a kernel of one of torch's own operators."""
    return func.namespace in _TORCHS_OWN and bool(_files(func))


def _embedded(func: Any, device: str) -> Iterator[str]:
    """The operator defined anew, with the source of its kernel."""
    for kernel, key in _kernels(func, device):
        try:
            source, own = standalone(kernel)
        except NotAloneError:
            continue
        schema = str(func._schema).partition("::")[2]
        name = schema.partition("(")[0]
        if func.namespace in _TORCHS_OWN:
            yield (
                f"{source}\n\n\nlibrary = torch.library.Library({func.namespace!r}, 'IMPL')\n"
                f"library.impl({name!r}, {own}, {key!r}, allow_override=True)"
            )
            continue
        yield (
            f"{source}\n\n\nlibrary = torch.library.Library({func.namespace!r}, 'FRAGMENT')\n"
            f"library.define({schema!r})\nlibrary.impl({name!r}, {own}, {key!r})"
        )


def _kernels(func: Any, device: str) -> Iterator[tuple[types.FunctionType, str]]:
    key = _DEVICE_KEYS.get(device, "CompositeExplicitAutograd")
    definition = _custom_op(func)
    if definition is not None:
        registered = definition._backend_fns.get(device) or definition._backend_fns.get(None)
        own = _inner_function(registered) if registered is not None else None
        for function in (own, definition._init_fn):
            if isinstance(function, types.FunctionType):
                yield function, key
        return
    for file in _files(func):
        yield from ((function, key) for function in _registered_in(file, func, key))


def _custom_op(func: Any) -> Any:
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None
    return OPDEFS.get(func._schema.name)


def _inner_function(wrapped: Any) -> types.FunctionType | None:
    """The user's function inside the wrapper that torch registers."""
    cells = dict(zip(wrapped.__code__.co_freevars, wrapped.__closure__ or (), strict=True))
    cell = cells.get("fn")
    return cell.cell_contents if cell is not None and isinstance(cell.cell_contents, types.FunctionType) else None


def _files(func: Any) -> list[str]:
    """Python files in which the operator or its kernels were registered, besides torch's own."""
    dump = torch._C._dispatch_dump(func._schema.name)
    torchs = str(Path(torch.__file__).parent)
    found = re.findall(r"registered at (.+?\.py):\d+", dump)
    return [file for file in dict.fromkeys(found) if not file.startswith(torchs) and Path(file).is_file()]


def _registered_in(file: str, func: Any, key: str) -> list[types.FunctionType]:
    """Functions that a file registers as kernels of the operator, those for the device first."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return []
    plain = func._schema.name.partition("::")[2]
    names: list[tuple[bool, str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names += [
                (_tells(decorator, key), node.name, node.lineno)
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and _tells_of(decorator, plain)
            ]
        elif isinstance(node, ast.Call) and _tells_of(node, plain):
            names += [
                (_tells(node, key), each.id if isinstance(each, ast.Name) else "<lambda>", each.lineno)
                for each in node.args[1:]
                if isinstance(each, ast.Name | ast.Lambda)
            ]
    ordered = sorted(names, key=lambda each: not each[0])
    return [function for _, name, line in ordered for function in _live(file, name, line)]


def _tells_of(call: ast.Call, plain: str) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "impl" and any(
        isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and each.value.rpartition("::")[2].partition(".")[0] == plain
        for each in call.args
    )


def _tells(call: ast.Call, key: str) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(each, ast.Constant) and each.value == key for each in given)


def _live(file: str, name: str, line: int) -> list[types.FunctionType]:
    """Functions of that file and name that exist now; lambdas by their line."""
    return [
        each
        for each in gc.get_objects()
        if type(each) is types.FunctionType  # isinstance would wake what is lazy
        and each.__code__.co_filename == file
        and each.__name__ == name
        and (name != "<lambda>" or each.__code__.co_firstlineno == line)
    ]


def _by_file(func: Any) -> Iterator[str]:
    """The file that registers it, run by its path."""
    files = _files(func)
    definition = _custom_op(func)
    if definition is not None:
        files.append(definition._init_fn.__code__.co_filename)
    for file in dict.fromkeys(files):
        if Path(file).is_file():
            yield (
                "import importlib.util\nimport sys\n\n"
                f"sys.path.insert(0, {str(Path(file).parent)!r})\n"
                f"spec = importlib.util.spec_from_file_location('registers_the_operator', {file!r})\n"
                "module = importlib.util.module_from_spec(spec)\nsys.modules[spec.name] = module\n"
                "spec.loader.exec_module(module)"
            )
