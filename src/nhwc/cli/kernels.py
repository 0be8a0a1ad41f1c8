"""The option ``--kernels`` of the commands that run a model: alone it means all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from nhwc.errors import TargetError

_OPTION, _ALL = "--kernels", "all"

KernelsOption = Annotated[
    list[str],
    typer.Option(_OPTION, metavar="[A,B]", help="With nhwc's kernels on: those named, or all. After TARGET."),
]


class KernelsCommand(TyperCommand):
    """A command whose --kernels may stand without a value, which typer knows nothing of."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``, in which a bare --kernels stands for --kernels=all."""
        return super().parse_args(ctx, completed(args))


def completed(args: Sequence[str]) -> list[str]:
    """``args`` with a value for every --kernels that has none: nothing follows it, or another option.

    >>> completed(["resnet50", "--kernels", "--train", "--kernels", "pad"])
    ['resnet50', '--kernels=all', '--train', '--kernels', 'pad']
    """
    made = list(args)
    for place, word in enumerate(made):
        if word == _OPTION and (place + 1 == len(made) or made[place + 1].startswith("-")):
            made[place] = f"{_OPTION}={_ALL}"
    return made


def kernel_names(values: Sequence[str]) -> list[str]:
    """The names that --kernels gave, each once; ["all"] for all. Raises TargetError for an empty one."""
    names = list(dict.fromkeys(name.strip() for value in values for name in value.split(",")))
    if "" in names:
        raise TargetError("--kernels names no kernel; write it alone for all of them, or as in --kernels pad,cat")
    if _ALL in names and len(names) > 1:
        raise TargetError("--kernels all stands alone; leave out the others")
    return names


def with_kernels(specs: Sequence[str], names: Sequence[str]) -> list[str]:
    """The variants ``specs``, each with these kernels. Raises TargetError for one that names kernels itself.

    >>> with_kernels(["channels_last"], ["pad", "cat"]), with_kernels(["channels_last+bf16"], ["all"])
    (['channels_last+kernels:pad:cat'], ['channels_last+bf16+kernels'])
    """
    if not names:
        return list(specs)
    for spec in specs:
        if any(part.strip().partition(":")[0] == "kernels" for part in spec.split("+")):
            raise TargetError(f"--kernels and the variant {spec} both say which kernels are on; leave one out")
    part = ":".join(["kernels", *(name for name in names if name != _ALL)])
    return [f"{spec}+{part}" for spec in specs]
