"""Zeros around a picture become the padding of the convolution that reads it."""

from __future__ import annotations

from dataclasses import replace

from nhwc.inference.graph import Graph
from nhwc.inference.operations import Convolution, Copy


def absorb(graph: Graph) -> None:
    """Where both sides have as many, and nothing else reads the padded picture."""
    users = graph.users()
    for node in graph.nodes:
        work = node.work
        if not isinstance(work, Copy) or not work.padding or work.value != 0:
            continue
        after = graph.single_user(node.output, users)
        if after is None or not isinstance(after.work, Convolution) or after.work.transposed:
            continue
        if after.inputs[0] is node.output and all(low == high for low, high in work.padding):
            wider = tuple(have + low for have, (low, _) in zip(after.work.padding, work.padding, strict=True))
            after.work, after.inputs = replace(after.work, padding=wider), list(node.inputs)
