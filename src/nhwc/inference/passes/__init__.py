"""Rewrites of the graph before values are placed: one file per pass; the order is here."""

from __future__ import annotations

from nhwc.inference.graph import Graph
from nhwc.inference.passes import affine, chains, epilogues, flattening, padding, permutations

#: In the order in which they run.
PASSES = (
    padding.absorb,
    permutations.sink,
    affine.fold,
    affine.lower,
    epilogues.fuse,
    chains.merge,
    flattening.permute_weights,
)


def simplify(graph: Graph) -> None:
    """Run every pass; the graph computes the same with fewer nodes."""
    for run in PASSES:
        run(graph)
        graph.prune()
        graph.check()
