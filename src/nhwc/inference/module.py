"""What ``nhwc.engine`` returns: a module that is called like the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.engine_report import EngineReport
from nhwc.errors import EngineError
from nhwc.inference import saving
from nhwc.inference.loaded import Loaded
from nhwc.inference.refreshing import refreshed
from nhwc.inference.reporting import measured_report, noise
from nhwc.inference.saving.engines import Origin
from nhwc.inference.specialization import Signature, Specialization, signature_of


class Engine(torch.nn.Module):
    """The model made ready for inference on the CPU. Called like the model; safe from many Python threads at once.

    Inputs of shapes that it was not built for run through the original model, with one warning. Gradients do not flow
    through it: it raises EngineError where an input asks for them, and in training mode.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        specializations: Sequence[Specialization | Loaded],
        target: str = "",
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        self.training = False
        # in a tuple, so that it is no part: parameters() and state_dict() are empty
        self._original: tuple[torch.nn.Module | None] = (model,)
        self.target = target or type(model).__name__
        self.origin = origin
        self._specializations: dict[Signature, Specialization | Loaded] = {each.signature: each for each in specializations}
        self._in_spec = specializations[0].captured.in_spec
        self._out_spec = specializations[0].captured.out_spec
        self._warned = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, in channels last."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        found = self._specializations.get(_hashable(flat)) if spec == self._in_spec else None
        _refuse_gradients(flat)
        if found is None or torch.is_autocast_enabled("cpu"):
            return self._by_original(args, kwargs, found is None)
        with torch.no_grad():
            outputs = found(flat)
        return pytree.tree_unflatten(outputs, found.captured.out_spec)

    def train(self, mode: bool = True) -> Engine:
        """Stay in evaluation mode. Raises EngineError for ``mode=True``."""
        if mode:
            raise EngineError("an engine cannot be trained; train the model that it was built from, and build it again")
        return self

    def extra_repr(self) -> str:
        shapes = "; ".join(str(each) for each in self._specializations)
        return f"{self.target}, built for {shapes}"

    @property
    def original(self) -> torch.nn.Module | None:
        """The model that it was built from; None where it was released, or the engine comes from a file."""
        return self._original[0]

    @property
    def specializations(self) -> tuple[Specialization | Loaded, ...]:
        """One for each set of shapes, in the order in which they were asked for."""
        return tuple(self._specializations.values())

    def save(self, path: str | Path, *, portable: bool = True) -> Path:
        """Write the engine to one file, from which ``nhwc.load_engine`` makes it again without the model's code.

        portable: keep the weights as they were too, from which another machine chooses algorithms of its own; without
        them the file is about half as large, and runs only where the same instructions and the same nhwc are.

        Raises EngineError where something in it cannot be saved, such as an operator of a library that is not torch's,
        or where the file cannot be written; a file that was there stays as it was then.
        """
        path = Path(path)
        saving.write(path, self.specializations, self.target, self._here(), portable=portable)
        return path

    def refresh(self, model: torch.nn.Module) -> None:
        """Take the weights of ``model``, which has the architecture and the shapes of the one it was built from.

        Choices stay, weights are folded and packed again. Calls that run meanwhile, in other threads, use the old
        weights to their end. Raises EngineError where the model is another one, with the first difference, and for
        engines without their model; the engine stays as it was then.
        """
        fresh = [refreshed(each, model) for each in self.specializations]
        self._specializations = {each.signature: each for each in fresh}
        self._original = (model,)

    def release(self) -> None:
        """Let go of the original model and of its weights: what remains is what steps read.

        Inputs of other shapes raise EngineError then, and other numbers of threads run what was chosen for the nearest.
        """
        loaded = saving.as_loaded(self.specializations, self.target, self._here())
        self._specializations = {each.signature: each for each in loaded}
        self._original = (None,)

    def report(self, *inputs: Any, kwargs: Mapping[str, Any] | None = None, repeats: int = 10) -> EngineReport:
        """What every step of one specialization runs and takes, measured in whole calls on the current threads.

        inputs, kwargs: arguments that it was built for, by default noise in the shapes it was first built for.
        """
        flat, _ = pytree.tree_flatten((inputs, dict(kwargs or {})))
        key = _hashable(flat) if flat else next(iter(self._specializations))
        found = None if key is None else self._specializations.get(key)
        if found is None:
            raise EngineError(f"the engine was not built for {key}; it was built for {self._built_for()}")
        return measured_report(self, found, flat or noise(found.signature), repeats)

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        # nothing in it changes while it runs, so that copies share it
        copied = type(self)(self.original, self.specializations, self.target, self.origin)
        memo[id(self)] = copied
        return copied

    def __reduce__(self) -> Any:
        raise EngineError("an engine is not pickled; save it with engine.save(path) and load it with nhwc.load_engine")

    def _here(self) -> Origin:
        return self.origin or Origin.here("", "")

    def _built_for(self) -> str:
        return "; ".join(map(str, self._specializations))

    def _by_original(self, args: Sequence[Any], kwargs: dict[str, Any], unknown: bool) -> Any:
        model = self.original
        if model is None:
            raise EngineError(
                "the engine has no original model to run these inputs, since it was released or loaded from a file; "
                + (f"it was built for {self._built_for()}" if unknown else "leave autocast, which it does not run under")
            )
        if unknown and not self._warned:
            self._warned = True
            warnings.warn(
                "the engine was not built for these inputs, so the original model runs them; name their shapes or "
                f"batch sizes when you build it (built for {self._built_for()})",
                RuntimeWarning,
                stacklevel=4,
            )
        with torch.no_grad():
            return model(*args, **kwargs)


def _hashable(flat: Sequence[Any]) -> Signature | None:
    signature = signature_of(flat)
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


def _refuse_gradients(flat: Sequence[Any]) -> None:
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in flat):
        raise EngineError(
            "an engine gives no gradients, and an input requires them; detach it, call inside torch.no_grad(), "
            "or call the original model"
        )
