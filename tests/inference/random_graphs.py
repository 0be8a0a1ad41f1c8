"""Modules drawn at random: operations of every kind on values of one to five dimensions, for comparison with eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from inference import random_layers, random_views
from inference.random_draws import DRAWS
from torch import Tensor, nn

assert random_layers, random_views  # which register what they draw

_LIMIT = 40_000  # numbers in a value, so that a graph takes milliseconds


class RandomGraph(nn.Module):
    """A module, its example inputs, and what it does as text; the same for the same seed.

    values: those of the example while it is drawn. Outputs may be inputs, views of one another, or Python numbers.
    """

    def __init__(self, seed: int, length: int = 12) -> None:
        super().__init__()
        torch.manual_seed(seed)
        r = random.Random(seed)
        self.parts = nn.ModuleList()
        self.steps: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        self.told: list[str] = []
        self.example = [torch.randn(_shape(r)) for _ in range(r.choice((1, 1, 2, 3)))]
        self.values: list[Tensor] = [each.clone() for each in self.example]
        with torch.no_grad():
            for _ in range(length * 3):
                if len(self.steps) < length:
                    self._extend(r)
        count = len(self.values)
        drawn = [r.randrange(count) for _ in range(r.randrange(3))]
        self.returned: list[Any] = [count - 1, *drawn] + ([2.5, None] if r.random() < 0.1 else [])
        self.python = len(self.returned) - (2 if self.returned[-1] is None else 0)
        self.eval()

    def _extend(self, r: random.Random) -> None:
        at = len(self.values) - 1 if r.random() < 0.6 else r.randrange(len(self.values))
        weights = [weight for weight, _ in DRAWS]
        _, draw = r.choices(DRAWS, weights)[0]
        before, parts = [each.clone() for each in self.values], len(self.parts)
        try:
            found = draw(self, r, self.values[at]) if self.values[at].dim() else None
            if found is None:
                return
            function, others = found
            self.parts.eval()
            results = function(*(self.values[place] for place in (at, *others)))
        except (RuntimeError, ValueError, IndexError):  # not for this shape
            del self.parts[parts:]
            for value, was in zip(self.values, before, strict=True):
                if value.shape == was.shape and not torch.equal(value, was):
                    value.copy_(was)
            return
        made = results if isinstance(results, (tuple, list)) else (results,)
        if not all(_is_fit(each) for each in made):
            del self.parts[parts:]
            return
        self.steps.append((function, (at, *others)))
        self.told.append(f"{draw.__name__}{(at, *others)} -> {[tuple(each.shape) for each in made]}")
        self.values += made

    def other(self, r: random.Random, fits: Callable[[Tensor], bool]) -> int | None:
        """The number of a value for which something holds."""
        found = [place for place, value in enumerate(self.values) if fits(value)]
        return r.choice(found) if found else None

    def keep(self, module: nn.Module) -> nn.Module:
        """The module, with parameters and statistics that do something."""
        for each in module.parameters():
            each.data.normal_(1.0 if each.dim() == 1 else 0.0, 0.3)
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer.data.uniform_(0.5, 1.5)
        self.parts.append(module)
        return module

    def forward(self, *inputs: Tensor) -> Any:
        values = list(inputs)
        for function, read in self.steps:
            results = function(*(values[place] for place in read))
            values += results if isinstance(results, (tuple, list)) else (results,)
        picked = [values[place] for place in self.returned[: self.python]]
        return (*picked, *self.returned[self.python :])


def _shape(r: random.Random) -> tuple[int, ...]:
    dimensions = r.choice((4, 4, 4, 4, 4, 3, 5, 2, 1))
    sizes = [r.randint(1, 3), r.choice((1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 32, 33, 48, 67))]
    spatial = [r.randint(1, 5 if dimensions == 5 else 14) for _ in range(max(dimensions - 2, 0))]
    return tuple([*sizes, *spatial][:dimensions])


def _is_fit(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.dtype == torch.float32
        and 0 < value.numel() <= _LIMIT
        and bool(value.isfinite().all())
        and float(value.abs().max()) < 1e3
    )
