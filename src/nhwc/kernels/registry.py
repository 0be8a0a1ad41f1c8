"""The kernels by name, and the operators that each replaces; a kernel registers itself where it is written.

A kernel is a set of replacements. Each is a function with the signature of the operator overload it replaces, run by
the dispatcher in its stead; it returns NotImplemented where it steps aside, and then the original runs on the same
operands.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nhwc.errors import RegistryError

#: Where a replacement can stand: below autograd on a device, in autograd's stead, or in place of a composition.
DISPATCH_KEYS = ("CPU", "AutogradCPU", "CUDA", "AutogradCUDA", "CompositeImplicitAutograd")

Implementation = Callable[..., Any]


@dataclass(frozen=True)
class Replacement:
    """One function that stands in for ``operator`` ("aten::avg_pool3d", "aten::add.Tensor") at a dispatch key.

    keeps_strides: whatever it answers is laid out as the original's answer, so that compiled code may have it too.
    where: asked at installation; where it says no, the replacement is left out.
    """

    operator: str
    key: str
    run: Implementation
    keeps_strides: bool = False
    where: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Kernel:
    """What ``nhwc.kernels.use("name")`` switches on.

    about: one line for people. native: what is lost without the native library, empty where compositions do it all.
    native_only: patterns of operators ("*", "*_backward") whose originals run unchanged without the native library.
    needs: a package that brings the operators ("torchvision"), empty for torch's own.
    uses: kernels that are switched on with it. ranks: of the tensors that it serves. mends: whether the originals lose
    the format or are slow in it, so that findings about them name it; else it is there for speed alone.
    """

    name: str
    about: str
    native: str = ""
    needs: str = ""
    uses: tuple[str, ...] = ()
    ranks: tuple[int, ...] = (4, 5)
    native_only: tuple[str, ...] = ()
    mends: bool = True
    replacements: list[Replacement] = field(default_factory=list, compare=False)

    def replaces(
        self,
        operator: str,
        key: str = "CPU",
        *,
        keeps_strides: bool = False,
        where: Callable[[], bool] | None = None,
    ) -> Callable[[Implementation], Implementation]:
        """Register a function as the replacement of ``operator`` at dispatch key ``key``, ``where`` it can run.

        Raises RegistryError for a name without namespace, an unknown key, or an operator that is replaced already.
        """
        if "::" not in operator:
            raise RegistryError(f"an operator is named with its namespace, as aten::add.Tensor; got {operator!r}")
        if key not in DISPATCH_KEYS:
            raise RegistryError(f"no kernel stands at dispatch key {key!r}; use one of {', '.join(DISPATCH_KEYS)}")
        owner = _OWNER.get((operator, key))
        if owner is not None:
            raise RegistryError(f"{operator} is replaced at {key} by {owner!r} already; extend that kernel instead")

        def register(run: Implementation) -> Implementation:
            _OWNER[operator, key] = self.name
            self.replacements.append(Replacement(operator, key, run, keeps_strides, where))
            return run

        return register

    @property
    def operators(self) -> tuple[str, ...]:
        """The overloads that it replaces, each once, sorted."""
        return tuple(sorted({each.operator for each in self.replacements}))

    def is_native_only(self, operator: str) -> bool:
        """Whether it does nothing for an operator ("aten::cat", "aten.cat.default") without the native library."""
        name = _dotted(operator).replace(".", "::", 1)
        return any(fnmatch.fnmatchcase(name, each) for each in self.native_only)


_KERNELS: dict[str, Kernel] = {}
_OWNER: dict[tuple[str, str], str] = {}


def kernel(
    name: str,
    about: str,
    *,
    native: str = "",
    needs: str = "",
    uses: tuple[str, ...] = (),
    ranks: tuple[int, ...] = (4, 5),
    native_only: tuple[str, ...] = (),
    mends: bool = True,
) -> Kernel:
    """A new, empty kernel; its file then adds replacements. Raises RegistryError where the name is taken or no word."""
    if not name.isidentifier() or name != name.lower():
        raise RegistryError(f"a kernel is named by a lower-case word, got {name!r}")
    if name in _KERNELS:
        raise RegistryError(f"the kernel {name!r} is registered twice; give the second another name")
    _KERNELS[name] = Kernel(name, about, native, needs, uses, ranks, native_only, mends)
    return _KERNELS[name]


def kernels() -> tuple[Kernel, ...]:
    """All registered kernels, by name."""
    return tuple(_KERNELS[name] for name in sorted(_KERNELS))


def chosen(names: Iterable[object]) -> tuple[Kernel, ...]:
    """The kernels of these names, each once; all for none. Raises RegistryError for what is no name of a kernel."""
    wanted = list(dict.fromkeys(map(_known, names))) or sorted(_KERNELS)
    used = [other for name in wanted for other in _KERNELS[name].uses]
    return tuple(_KERNELS[name] for name in dict.fromkeys([*used, *wanted]))


def _known(name: object) -> str:
    if isinstance(name, Kernel):
        raise RegistryError(f"kernels are named by text, one by one: use({name.name!r}), not the kernel itself")
    if isinstance(name, list | tuple | set | frozenset):
        example = ", ".join(repr(each.name if isinstance(each, Kernel) else each) for each in name)
        raise RegistryError(f"kernels are named one by one: use({example}), not as one {type(name).__name__}")
    if not isinstance(name, str):
        raise RegistryError(f"a kernel is named by text, as in use('pad', 'cat'), not by {name!r}")
    if name not in _KERNELS:
        near = difflib.get_close_matches(name, _KERNELS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_KERNELS))}"
        raise RegistryError(f"there is no kernel {name!r}; {hint}")
    return name


def replacing(operator: str) -> Kernel | None:
    """The kernel that replaces an overload: "aten::cat", "aten.cat.default", or "cat" for one of aten; or None."""
    wanted = {_dotted(operator), *([] if "::" in operator else [f"aten.{_dotted(operator)}"])}
    for each in _KERNELS.values():
        if any(_dotted(other.operator) in wanted for other in each.replacements):
            return each
    return None


def _dotted(operator: str) -> str:
    return operator.replace("::", ".").removesuffix(".default")
