"""What ``nhwc.engine`` returns: a module that is called like the model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.buckets import Buckets
from nhwc.inference.numerics import Accuracy
from nhwc.inference.report import EngineReport, report_of
from nhwc.inference.specialization import Specialization, signature_of


class Engine(torch.nn.Module):
    """The model made ready for inference on the CPU. Called like the model; safe from many Python threads at once.

    Inputs of shapes that it was not built for run through the original model, with one warning. Gradients do not flow
    through it: it raises EngineError where an input asks for them, and in training mode.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        specializations: Sequence[Specialization],
        buckets: Sequence[Specialization] = (),
        accuracy: Accuracy | None = None,
    ) -> None:
        super().__init__()
        self.training = False
        # in a tuple, so that it is no part: parameters() and state_dict() are empty
        self._original = (model,)
        self._specializations = {each.signature: each for each in (*specializations, *buckets)}
        self._in_spec = specializations[0].captured.in_spec
        self._first = specializations[0]
        self._buckets = Buckets(specializations[0], buckets) if buckets else None
        self._accuracy = accuracy
        self._warned = False

    @property
    def report(self) -> EngineReport:
        """Every step with its module, algorithm and time, measured now; what fell back to torch; memory; accuracy.

        On the example that the engine was built with, and as many threads as torch has now.
        """
        return report_of(self._first, torch.get_num_threads(), self._accuracy)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, in channels last."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        found = self._specializations.get(signature_of(flat)) if spec == self._in_spec else None
        _refuse_gradients(flat)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if found is not None:
                return pytree.tree_unflatten(found(flat), found.captured.out_spec)
            if self._buckets is not None and spec == self._in_spec:
                filled = self._buckets.run(flat)
                if filled is not None:
                    return filled
        return self._by_original(args, kwargs)

    def train(self, mode: bool = True) -> Engine:
        """Stay in evaluation mode. Raises EngineError for ``mode=True``."""
        if mode:
            raise EngineError("an engine cannot be trained; train the model that it was built from, and build it again")
        return self

    def extra_repr(self) -> str:
        shapes = "; ".join(str(each) for each in self._specializations)
        return f"{type(self._original[0]).__name__}, built for {shapes}"

    def _by_original(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not self._warned:
            self._warned = True
            warnings.warn(
                "the engine was not built for these inputs, so the original model runs them; name their shapes or "
                f"batch sizes when you build it (built for {'; '.join(map(str, self._specializations))})",
                RuntimeWarning,
                stacklevel=4,
            )
        with torch.no_grad():
            return self._original[0](*args, **kwargs)


def _refuse_gradients(flat: Sequence[Any]) -> None:
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in flat):
        raise EngineError(
            "an engine gives no gradients, and an input requires them; detach it, call inside torch.no_grad(), "
            "or call the original model"
        )
