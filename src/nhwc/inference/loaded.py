"""The engine for inputs of certain shapes without the model behind it: read from a file, or released from its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.inference.building import Plan
from nhwc.inference.graph import Graph
from nhwc.inference.run import Runner
from nhwc.inference.turns import Lock


@dataclass(frozen=True)
class Trees:
    """How arguments and outputs are nested."""

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


class Loaded:
    """Plans by number of threads, with their steps; calls on other numbers of threads run those of the nearest.

    tensors: which of the flattened arguments are the graph's. has_weights: whether plans hold the weights from which
    other algorithms can be built.
    """

    def __init__(
        self,
        signature: tuple[Any, ...],
        in_spec: pytree.TreeSpec,
        out_spec: pytree.TreeSpec,
        tensors: Sequence[int],
        exact: bool,
        build_s: float,
    ) -> None:
        self.signature, self.tensors = signature, list(tensors)
        self.captured = Trees(in_spec, out_spec)
        self.exact, self.build_s, self.has_weights = exact, build_s, False
        self.plans: dict[int, Plan] = {}
        self.runners: dict[int, Runner] = {}
        self._lock = Lock()

    @cached_property
    def example(self) -> list[torch.Tensor]:
        """Tensors to measure with: normal noise for floats, zeros for others."""
        generator = torch.Generator().manual_seed(0)
        entries = [self.signature[place] for place in self.tensors]
        return [
            torch.randn(shape, generator=generator).to(dtype)
            if dtype.is_floating_point
            else torch.zeros(shape, dtype=dtype)
            for shape, dtype in entries
        ]

    @property
    def graph(self) -> Graph:
        """What every plan returns, without nodes."""
        return next(iter(self.plans.values())).graph

    def ready(self, threads: int) -> Runner:
        """The runner for a number of threads: made for it, else for the next larger number, else for the largest.

        Steps run on fewer threads than they were tuned for as they are.
        """
        found = self.runners.get(threads)
        if found is None:
            with self._lock:
                found = self.runners.get(threads) or self._borrowed(threads)
        return found

    def _borrowed(self, threads: int) -> Runner:
        made = self.nearest(threads)
        of = self.runners[made]
        fewer = Runner(of.ports, of.sections, of.arena_bytes, min(threads, made))
        self.runners[threads] = fewer
        return fewer

    def nearest(self, threads: int) -> int:
        """The number of threads whose plan a call on so many runs."""
        enough = [each for each in self.plans if each >= threads]
        return min(enough) if enough else max(self.plans)

    def __call__(self, flat: Sequence[Any]) -> list[Any]:
        """The flattened outputs for flattened arguments that have the signature."""
        return self.ready(torch.get_num_threads())([flat[place] for place in self.tensors])
