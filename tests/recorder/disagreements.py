"""Looks for operators whose fake result lies in another format than eager's: torch's samples, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from nhwc.recorder.static import Correction, fake_mode

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
#: The first samples of an operator; they grow more special, not more different in layout.
MOST_SAMPLES = 5


class Compare(TorchDispatchMode):
    """Runs every call on fake tensors too, corrects the result as a static recording does, and compares strides."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = fake_mode()
        self.found: dict[str, list[tuple[object, ...]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            fakes, options = tree_map_only(torch.Tensor, self.fake.from_tensor, (args, kwargs))
            with self.fake:
                inputs = [leaf for leaf in tree_leaves((fakes, options)) if isinstance(leaf, torch.Tensor)]
                promised = Correction()(func, inputs, func(*fakes, **options))
        except Exception:  # noqa: BLE001 - what fake tensors refuse, a static recording refuses too
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        pairs = zip(tree_leaves(result), tree_leaves(promised), strict=True)
        for eager, fake in pairs:
            if not isinstance(eager, torch.Tensor) or eager.dim() not in FORMATS or eager.layout is not torch.strided:
                continue
            if eager.numel() and eager.shape == fake.shape and significant(eager) != significant(fake):
                strides = [tuple(value.stride()) for value in inputs]
                self.found.setdefault(func.name(), []).append((strides, eager.stride(), fake.stride()))
        return result


def significant(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def channels_last(tree: Any) -> Any:
    def convert(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.dim() not in FORMATS:
            return tensor
        return tensor.detach().to(memory_format=FORMATS[tensor.dim()]).requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, convert, tree)


def samples(operator: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Sample arguments in channels last, and the same with only the first operand in it."""
    count = 0
    for sample in operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd):
        tensors = [leaf for leaf in tree_leaves((sample.input, sample.args)) if isinstance(leaf, torch.Tensor)]
        if not any(tensor.dim() in FORMATS and tensor.layout is torch.strided for tensor in tensors):
            continue
        count += 1
        if count > MOST_SAMPLES:
            return
        first = channels_last(sample.input)
        yield first, channels_last(sample.args), channels_last(sample.kwargs)
        yield first, sample.args, sample.kwargs


def unexpected() -> dict[str, list[tuple[object, ...]]]:
    """Operator → (operands' strides, eager's, the corrected promise), where they differ."""
    from torch.testing._internal.common_methods_invocations import op_db

    compare = Compare()
    ran = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in op_db:
            if torch.float32 not in operator.supported_dtypes("cpu"):
                continue
            for first, args, kwargs in samples(operator):
                try:
                    with compare:
                        outputs = tree_leaves(operator(first, *args, **kwargs))
                        backward([leaf for leaf in outputs if isinstance(leaf, torch.Tensor) and leaf.requires_grad])
                    ran += 1
                except Exception:  # noqa: BLE001 - a sample that does not run in channels last
                    continue
    assert ran > 500, "torch's samples were not found"
    return compare.found


def backward(outputs: list[torch.Tensor]) -> None:
    if outputs:
        torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])
