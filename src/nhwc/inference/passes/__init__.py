"""Rewrites of the graph before values are placed: one file per pass; the order is here."""

from __future__ import annotations

from nhwc.inference.graph import Graph
from nhwc.inference.passes import affine

#: In the order in which they run.
PASSES = (affine.lower,)


def simplify(graph: Graph) -> None:
    """Run every pass; the graph computes the same with fewer nodes."""
    for run in PASSES:
        run(graph)
        graph.prune()
        graph.check()
