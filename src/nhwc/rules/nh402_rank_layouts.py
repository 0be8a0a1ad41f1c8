"""Ranks hold the same tensor in different layouts: broadcast and all_reduce permute its values silently."""

from __future__ import annotations

from collections.abc import Iterator

from nhwc.model import Severity, TensorMeta
from nhwc.rules.flow import Flow
from nhwc.rules.registry import Draft, rule
from nhwc.rules.wording import names_text


def _significant(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(stride for size, stride in zip(shape, strides, strict=True) if size > 1)


@rule("NH402", kind="numerics", severity=Severity.ERROR)
def find(flow: Flow) -> Iterator[Draft]:
    """The ranks' layouts differ before a collective."""
    ranks = flow.trace.ranks
    if len(ranks) < 2:
        return
    first = {name: (shape, strides) for name, shape, strides in ranks[0].tensors}
    differing: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {}
    for rank in ranks[1:]:
        for name, shape, strides in rank.tensors:
            if name in first and first[name][0] == shape and _significant(shape, strides) != _significant(*first[name]):
                differing.setdefault(name, (rank.rank, shape, first[name][1], strides))
    if not differing:
        return
    name, (rank_number, shape, mine, other) = next(iter(differing.items()))
    yield Draft(
        None,
        "collective",
        name.rpartition(".")[0],
        None,
        "forward",
        (TensorMeta(shape, mine, "", "", -1, 0, 0), TensorMeta(shape, other, "", "", -1, 0, 0)),
        0,
        f"ranks hold {names_text(list(differing))} in different layouts "
        f"({name}: strides {mine} on rank 0, {other} on rank {rank_number}): collectives permute its values",
        "convert the model on every rank before the process group or DistributedDataParallel sees it",
        calls=len(differing),
    )
