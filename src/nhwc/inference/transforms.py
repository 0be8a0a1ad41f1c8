"""What torch records or transforms a call with: the engine's kernels read memory, which tensors have none of there.

Private interfaces, read from torch 2.11 to 2.14: in torch._C ``_get_tracing_state``, ``_len_torch_dispatch_stack``,
``_get_dispatch_mode`` with ``_TorchDispatchModeKey``, and ``_functorch.peek_interpreter_stack``; and
``torch.autograd.forward_ad._current_level``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from nhwc.errors import EngineError

_MODES = torch._C._TorchDispatchModeKey
_RECORDING = (_MODES.FAKE, _MODES.PROXY, _MODES.FUNCTIONAL)


def refuse_transforms(flat: Sequence[Any]) -> None:
    """Raise EngineError inside torch.jit.trace, torch.export, torch.vmap, torch.func.grad and the like.

    Tells by the state of the thread, which costs less than a look at every tensor.
    """
    if torch._C._get_tracing_state() is not None:
        raise _recorded("torch.jit.trace")
    if torch._C._len_torch_dispatch_stack() and any(torch._C._get_dispatch_mode(key) is not None for key in _RECORDING):
        raise _recorded("torch.export, make_fx or a FakeTensorMode")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise EngineError(
            "an engine runs no call inside torch.vmap, torch.func.grad, torch.func.jvp or another transform of "
            "torch.func; transform the original model, or call the engine outside"
        )
    # forward_ad has no public question for whether any tangent can be there
    if forward_ad._current_level >= 0 and any(_has_tangent(each) for each in flat):
        raise EngineError(
            "an engine gives no gradients, and an input has a forward-mode tangent; give it "
            "torch.autograd.forward_ad.unpack_dual(x).primal, or call the original model"
        )


def _recorded(by: str) -> EngineError:
    return EngineError(
        f"an engine cannot be recorded by {by}; record the original model, or keep the engine with engine.save(path)"
    )


def _has_tangent(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]
