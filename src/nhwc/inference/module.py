"""What ``nhwc.engine`` returns: a module that is called like the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.engine_report import Accuracy, EngineReport
from nhwc.errors import EngineError
from nhwc.inference import saving
from nhwc.inference.buckets import Buckets
from nhwc.inference.contents import Contents, Origin, Ready
from nhwc.inference.other_inputs import OtherInputs, built_for_text
from nhwc.inference.refreshing import refreshed
from nhwc.inference.reporting import measured_report
from nhwc.inference.requirements import suitable
from nhwc.inference.shortcut import Shortcuts, nested
from nhwc.inference.signature_text import arguments_text
from nhwc.inference.specialization import Signature, signature_of
from nhwc.inference.transforms import refuse_transforms


class Engine(torch.nn.Module):
    """The model made ready for inference on the CPU. Called like the model; safe from many Python threads at once.

    Inputs that it was not built for run through the original model, with one warning at the call that says what
    differs. Gradients do not flow through it. Raises EngineError where an input asks for them, in training mode, and
    for inputs that the original model does not take or is not there for.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        specializations: Sequence[Ready],
        buckets: Sequence[Ready] = (),
        accuracy: Accuracy | None = None,
        target: str = "",
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        self.training = False
        name = target or type(model).__name__
        self._use(
            model, Contents(tuple(specializations), tuple(buckets), accuracy, name, origin or Origin.here("", ""))
        )
        self._in_spec = specializations[0].captured.in_spec
        count = self._in_spec.num_leaves
        leaves: tuple[Any, ...] = (None,) * count
        self._tensors_alone = count if self._in_spec == pytree.tree_structure((leaves, {})) else -1
        self._warned = False

    def _use(self, model: torch.nn.Module | None, contents: Contents) -> None:
        ready = (*contents.specializations, *contents.buckets)
        buckets = Buckets(contents.specializations[0], contents.buckets) if contents.buckets else None
        specializations: dict[Signature, Ready] = {each.signature: each for each in ready}
        # one after the other: a call reads either of them, so that it runs all old or all new weights
        self._specializations, self._buckets, self._contents = specializations, buckets, contents
        # written last and read first, so that a call that began earlier leaves no old weights in it
        self._shortcuts = Shortcuts()
        # in a tuple, so that it is no part: parameters() and state_dict() are empty
        self._original: tuple[torch.nn.Module | None] = (model,)

    @property
    def original(self) -> torch.nn.Module | None:
        """The model that it was built from; None where it was released, or the engine comes from a file."""
        return self._original[0]

    @property
    def contents(self) -> Contents:
        """What it runs, for each set of shapes."""
        return self._contents

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, in channels last."""
        refuse_transforms(args if not kwargs else (*args, *kwargs.values()))
        shortcuts = self._shortcuts
        if not kwargs and shortcuts.recent is not None:
            given = shortcuts.recent(args)
            if given is not None:
                return given
        if not kwargs and len(args) == self._tensors_alone and all(type(each) is torch.Tensor for each in args):
            flat, spec = list(args), self._in_spec  # what flattening would find, which takes longer than a small layer
        else:
            flat, spec = pytree.tree_flatten((args, kwargs))
        found = self._specializations.get(signature_of(flat)) if spec == self._in_spec else None
        _refuse_gradients(flat)
        with torch.no_grad(), _as_they_are():
            if found is not None:
                outputs = found(flat)
                if len(flat) == self._tensors_alone:
                    shortcuts.follow(found)
                return nested(outputs, found.captured.out_spec)
            buckets = self._buckets
            if buckets is not None and spec == self._in_spec:
                filled = buckets.run(flat)
                if filled is not None:
                    return filled
        return self._by_original(args, kwargs)

    def report(self, *inputs: Any, kwargs: Mapping[str, Any] | None = None, repeats: int = 10) -> EngineReport:
        """What every step runs and takes, measured in ``repeats`` whole calls on the current number of threads.

        inputs, kwargs: arguments that it was built for, by default the example that it was first built with, or noise
        like it. Raises EngineError for other ones.
        """
        flat, spec = pytree.tree_flatten((inputs, dict(kwargs or {})))
        first = self._contents.specializations[0]
        found = self._specializations.get(signature_of(flat)) if flat else first
        if found is None:
            raise EngineError(
                f"the engine was not built for these inputs, {arguments_text(flat, spec)}; it was built for "
                f"{self._built_for()}"
            )
        tensors = [flat[place] for place in found.tensors] if flat else found.example
        return measured_report(self._contents, found, tensors, repeats)

    def save(self, path: str | Path, *, portable: bool = True) -> Path:
        """Write the engine to one file, from which ``nhwc.load_engine`` makes it again without the model's code.

        portable: keep the weights as they were too, from which another machine, library or nhwc chooses algorithms of
        its own; without them the file is smaller by their size, and runs only where all three are the same.

        Raises EngineError where something in it cannot be saved, such as an operator of a library that is not torch's,
        or where the file cannot be written; a file that was there stays as it was then. Makes no folders.
        """
        path = Path(path)
        saving.write(path, self._contents, portable=portable)
        return path

    def refresh(self, model: torch.nn.Module) -> None:
        """Take the weights of ``model``, which has the architecture and the shapes of the one it was built from.

        It is captured again to be compared; choices stay, weights are folded and packed again. Calls that run
        meanwhile, in other threads, use the old weights to their end. Raises EngineError where the model is another
        one, with the first difference, where its weights fold into other operations, and for engines without their
        model; the engine stays as it was then.
        """
        old, asked = self._contents, suitable(model, Engine)
        fresh = [refreshed(each, asked) for each in old.specializations]
        buckets = [refreshed(each, asked) for each in old.buckets]
        # the error was measured with other weights
        self._use(model, Contents(tuple(fresh), tuple(buckets), None, old.target, old.origin))

    def release(self) -> None:
        """Let go of the original model and of its weights: what remains is what steps read.

        Inputs of other shapes raise EngineError then, and other numbers of threads run what was chosen for the nearest.
        """
        self._use(None, saving.released(self._contents))

    def train(self, mode: bool = True) -> Engine:
        """Stay in evaluation mode. Raises EngineError for ``mode=True``."""
        if mode:
            raise EngineError("an engine cannot be trained; train the model that it was built from, and build it again")
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Raise EngineError, since an engine holds no parameters, but for its own ``state_dict()``, which is empty."""
        if state_dict:
            raise EngineError(
                "an engine holds no parameters to load; load them into the model, and call engine.refresh(model)"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Engine:
        """What half(), to() and the like do: nothing here, or EngineError where they ask for a change."""
        del recurse
        asked = fn(torch.zeros(1, dtype=torch.float32, device="cpu"))
        if asked.dtype != torch.float32 or asked.device.type != "cpu":
            raise EngineError(
                f"an engine computes in float32 on the CPU and cannot become {asked.dtype} on {asked.device.type}; "
                "convert the model, and call that"
            )
        return self

    def extra_repr(self) -> str:
        return f"{self._contents.target}, built for {self._built_for()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        # nothing in it changes while it runs, so that copies share it
        held = self._contents
        parts = held.specializations, held.buckets, held.accuracy, held.target, held.origin
        copied = type(self)(self.original, *parts)
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Engine:
        return self.__deepcopy__({})

    def __reduce__(self) -> Any:
        raise EngineError("an engine is not pickled; save it with engine.save(path) and load it with nhwc.load_engine")

    def __prepare_scriptable__(self) -> Any:
        raise EngineError(
            "an engine cannot be compiled by torch.jit.script; script the original model, or keep the engine with "
            "engine.save(path)"
        )

    def _built_for(self) -> str:
        return built_for_text(self._specializations, self._in_spec)

    def _by_original(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        others = OtherInputs(args, kwargs, tuple(self._specializations), self._in_spec)
        model = self.original
        if model is None:
            raise others.refuse()
        outputs = others.run(model)
        if not self._warned:
            self._warned = True
            others.warn()
        return outputs


def _as_they_are() -> AbstractContextManager[Any]:
    """Without autocast, which would give torch's part of the work other dtypes than were planned."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else _NOTHING


_NOTHING = nullcontext()


def _refuse_gradients(flat: Sequence[Any]) -> None:
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in flat):
        raise EngineError(
            "an engine gives no gradients, and an input requires them; detach it, call inside torch.no_grad(), "
            "or call the original model"
        )
