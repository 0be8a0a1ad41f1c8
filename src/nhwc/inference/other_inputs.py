"""Calls with inputs that no plan was made for: what differs, what to do about it, and the original model's run."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.callers import first_line, stack_level
from nhwc.inference.signature_text import arguments_text, dtype_text, is_tensor_entry, signature_text
from nhwc.inference.specialization import Signature, signature_of
from nhwc.inference.turns import TURNS


def built_for_text(signatures: Iterable[Signature], in_spec: pytree.TreeSpec) -> str:
    """All arguments that an engine was built for, "or" between them."""
    return " or ".join(signature_text(each, in_spec) for each in signatures)


class OtherInputs:
    """One call that no plan fits, beside what the engine was built for."""

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        built: Sequence[Signature],
        in_spec: pytree.TreeSpec,
    ) -> None:
        self.args, self.kwargs, self.built, self.in_spec = args, kwargs, built, in_spec
        self.flat, self.spec = pytree.tree_flatten((tuple(args), dict(kwargs)))

    @property
    def difference(self) -> str:
        """Both in words."""
        return (
            f"the engine was built for {built_for_text(self.built, self.in_spec)} and was called with "
            f"{arguments_text(self.flat, self.spec)}"
        )

    def refuse(self) -> EngineError:
        """Where no model is left to run them."""
        return EngineError(
            f"{self.difference}, and it has no original model for other inputs, since it was released or loaded from "
            f"a file: {self._remedy()}"
        )

    def run(self, model: torch.nn.Module) -> Any:
        """The original model's outputs. Raises EngineError, from the model's own error, where it does not take them."""
        try:
            with torch.no_grad(), TURNS.shared():
                return model(*self.args, **self.kwargs)
        except Exception as error:
            remedy = self._conversion() or "give it inputs like the example's"
            raise EngineError(
                f"{self.difference}, which the original model does not take either ({first_line(error)}): {remedy}"
            ) from error

    def warn(self) -> None:
        """Say that torch ran them, at the user's line."""
        warnings.warn(
            f"{self.difference}: torch ran this call through the original model, which is slower, and will run others "
            f"like it without saying so; {self._remedy()}",
            RuntimeWarning,
            stacklevel=stack_level(),
        )

    def _conversion(self) -> str:
        """How the inputs become what the engine takes; empty where they differ in shapes or values."""
        if self.spec != self.in_spec:
            return "give arguments by place and by name as the example had them"
        for given, entry in zip(signature_of(self.flat), self.built[0], strict=True):
            if is_tensor_entry(given) != is_tensor_entry(entry):
                return "give tensors where the example had tensors, and values where it had values"
            if not is_tensor_entry(given):
                continue
            if given[2:] != entry[2:]:
                return "give plain tensors on the CPU"
            if given[1] != entry[1]:
                return f"convert the input with .to(torch.{dtype_text(entry[1])})"
        return ""

    def _remedy(self) -> str:
        conversion = self._conversion()
        if conversion:
            return conversion
        pairs = [
            (given[0], entry[0])
            for given, entry in zip(signature_of(self.flat), self.built[0], strict=True)
            if given != entry and is_tensor_entry(given)
        ]
        if pairs and all(given and given[1:] == entry[1:] for given, entry in pairs):
            return f"build it with batches=[{max(given[0] for given, _ in pairs)}] for batches of up to that size"
        return "build it with further example arguments: nhwc.engine(model, x, shapes=[(other_x,)])"
