"""Steps that talk to other processes, found out before they wait for one that does not answer.

Private interfaces, read from torch 2.11 to 2.14: torch.utils._python_dispatch.TorchDispatchMode; the operators of
torch.distributed are in the namespaces below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")


class RefusedCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, the operators of torch.distributed raise RuntimeError, before anything is sent.

    met: whether one was called, whatever became of its error.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.met = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace in _NAMESPACES:
            self.met = True
            raise RuntimeError(f"{func} waits for other processes")
        return func(*args, **(kwargs or {}))
