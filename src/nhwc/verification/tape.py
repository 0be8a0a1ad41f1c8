"""Random numbers that are the same in every run: drawn once, then replayed in any memory format and dtype.

Random kernels fill memory in the order in which it lies, so that equal seeds give other numbers in another format.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from nhwc.recorder.arguments import encode, generators, mutated

#: Random operators that read the values of no operand: they fill or make a tensor.
_PURE = frozenset(
    "bernoulli_.float bernoulli.p uniform uniform_ normal_ normal_functional normal.float_float random_ random "
    "exponential exponential_ geometric geometric_ cauchy cauchy_ log_normal log_normal_ rand randn randint randperm "
    "rand_like randn_like randint_like".split()
)


@dataclass(frozen=True)
class _Draw:
    """One random call: its outputs (pure ones), or what to repeat it from.

    before, after: states of its generator.
    """

    operator: str
    outputs: tuple[torch.Tensor, ...]
    dtypes: tuple[torch.dtype, ...]
    before: torch.Tensor
    after: torch.Tensor


class Tape:
    """The random draws of one run. ``recording`` fills it; ``replaying`` gives them to another run.

    mismatch: why a replaying run could not be given the draws, empty where it could.
    own: operators that draw from torch's generator without saying so; they cannot be replayed.
    unverified: operators whose answers depend on their operands too; they never run in another format.
    """

    def __init__(self) -> None:
        self.draws: list[_Draw] = []
        self.mismatch = ""
        self.own: list[str] = []
        self.unverified: list[str] = []

    def recording(self) -> TorchDispatchMode:
        """A mode that draws as usual and remembers."""
        return _Player(self, record=True)

    def replaying(self) -> _Player:
        """A mode that gives what was drawn; ``mismatch`` begins empty."""
        self.mismatch = ""
        return _Player(self, record=False)


class _Player(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, tape: Tape, record: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape
        self._record = record
        self._next = 0

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        left = len(self._tape.draws) - self._next
        if not self._record and error is None and left and not self._tape.mismatch:
            self._tape.mismatch = f"it draws random numbers {left} times less often than in contiguous format"

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        if is_random(func, args, kwargs):
            return self._draw(func, args, kwargs)
        if func.namespace in ("aten", "prims", "prim"):
            return func(*args, **kwargs)
        before = torch.default_generator.get_state()
        result = func(*args, **kwargs)
        if str(func) not in self._tape.own and not torch.equal(before, torch.default_generator.get_state()):
            self._tape.own.append(str(func))
        return result

    def _draw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        generator = _generator(args, kwargs)
        if self._record:
            return self._first(func, args, kwargs, generator)
        draw = self._tape.draws[self._next] if self._next < len(self._tape.draws) else None
        self._next += 1
        if draw is None or draw.operator != str(func):
            expected = "none" if draw is None else draw.operator
            self._mismatch(f"its random call {self._next} is {func} where contiguous format has {expected}")
            return func(*args, **kwargs)
        try:
            result = _replayed(func, args, kwargs, draw, generator)
        except _ShapeError:
            self._mismatch(f"its random call {self._next}, {func}, has another shape than in contiguous format")
            return func(*args, **kwargs)
        generator.set_state(draw.after)
        return result

    def _mismatch(self, sentence: str) -> None:
        self._tape.mismatch = self._tape.mismatch or sentence

    def _first(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], generator: torch.Generator) -> Any:
        before = generator.get_state()
        tensors: list[torch.Tensor] = []
        encode([list(args), list(kwargs.values())], tensors)
        dtypes = tuple(tensor.dtype for tensor in tensors)
        outputs: tuple[torch.Tensor, ...] = ()
        if _is_dropout(func):
            mask = func(*args, **kwargs)[1]
            outputs = (_dense(mask),)
            result = _dropped(args, mask)
        elif _is_pure(func):
            result = func(*args, **kwargs)
            outputs = tuple(_dense(tensor) for tensor in tree_flatten(result)[0] if isinstance(tensor, torch.Tensor))
        else:
            result = _canonical(func, args, kwargs, dtypes)
        if not _is_pure(func) and str(func) not in self._tape.unverified:
            self._tape.unverified.append(str(func))
        self._tape.draws.append(_Draw(str(func), outputs, dtypes, before, generator.get_state()))
        return result


class _ShapeError(Exception):
    """A draw of another shape than the one on the tape."""


def is_random(func: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> bool:
    """Whether a call of the operator ``func`` draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
        return False
    given = _named(func, args, kwargs or {})
    return not ("dropout_p" in given and not given["dropout_p"])


def _named(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return (
        {argument.name: argument.default_value for argument in func._schema.arguments}
        | dict(zip(names, args, strict=False))
        | kwargs
    )


def _name(func: Any) -> str:
    return str(func).partition(".")[2].removesuffix(".default")


def _is_pure(func: Any) -> bool:
    name = _name(func)
    return not name.endswith("out") and (name in _PURE or name.partition(".")[0] in _PURE)


def _is_dropout(func: Any) -> bool:
    return str(func) == "aten.native_dropout.default"


def _generator(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Generator:
    own = generators(args, kwargs)
    if own:
        return own[0]
    tensors: list[torch.Tensor] = []
    encode(list(args), tensors)
    device = torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index  # type: ignore[redundant-expr]
        return torch.cuda.default_generators[index]
    return torch.default_generator


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _replayed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draw: _Draw, generator: torch.Generator) -> Any:
    if _is_dropout(func):
        mask = draw.outputs[0]
        if mask.shape != args[0].shape:
            raise _ShapeError
        return _dropped(args, torch.empty_like(args[0], dtype=torch.bool).copy_(mask))
    if not _is_pure(func):
        generator.set_state(draw.before)
        return _canonical(func, args, kwargs, draw.dtypes)
    written = [args[0]] if func._schema.is_mutable else []
    target = written[0] if written else func(*args, **kwargs)
    if target.shape != draw.outputs[0].shape:
        raise _ShapeError
    return target.copy_(draw.outputs[0])


def _dropped(args: tuple[Any, ...], mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, share = args[:2]
    if args[2:3] == (False,):
        return value.clone(), mask
    return value * mask * (0.0 if share >= 1 else 1.0 / (1.0 - share)), mask


def _canonical(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtypes: Sequence[torch.dtype]) -> Any:
    """The call on contiguous copies of its operands, in the dtypes of the first run, so that it draws alike."""
    originals: list[torch.Tensor] = []
    encode([list(args), list(kwargs.values())], originals)
    wanted = iter(dtypes)
    copies: dict[int, torch.Tensor] = {}
    for tensor in originals:
        copies[id(tensor)] = _dense(tensor).to(next(wanted, tensor.dtype))

    def copied(value: Any) -> Any:
        return copies[id(value)] if isinstance(value, torch.Tensor) else value

    result = func(*tree_map(copied, args), **tree_map(copied, kwargs))
    for place in mutated(func, args, kwargs, originals):
        originals[place].copy_(copies[id(originals[place])])
    like = originals[0] if originals else None
    back = {id(copy): tensor for tensor in originals for copy in [copies[id(tensor)]]}

    def returned(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or like is None:
            return value
        if id(value) in back:
            return back[id(value)]
        dtype = like.dtype if value.is_floating_point() and like.is_floating_point() else value.dtype
        if value.shape == like.shape:
            return torch.empty_like(like, dtype=dtype).copy_(value)
        return value.to(dtype)

    with suppress(TypeError):
        return tree_map(returned, result)
    return result
