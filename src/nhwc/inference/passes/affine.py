"""What scales and shifts channels: folded into neighbouring weights, or made a pointwise operation."""

from __future__ import annotations

import torch

from nhwc.inference.graph import Affine, Graph, Value
from nhwc.inference.operations import Elementwise, Term


def lower(graph: Graph) -> None:
    """Every remaining scale and shift becomes a pointwise multiplication and addition."""
    for node in graph.nodes:
        if isinstance(node.work, Affine):
            node.work, node.inputs = _pointwise(node.work, node.inputs[0])


def _pointwise(work: Affine, x: Value) -> tuple[Elementwise, list[Value]]:
    shape = [1] * len(x.sizes)
    shape[work.dim] = -1
    inputs, terms = [x], [Term("input")]
    for kind, numbers, neutral in (("multiply", work.scale, 1.0), ("add", work.shift, 0.0)):
        if bool((numbers == neutral).all()):
            continue
        tensor = numbers.to(torch.float32).reshape(shape)
        last = len(terms) - 1
        terms += [Term("input", index=len(inputs)), Term(kind, (last, last + 1))]
        inputs.append(Value(f"{x.name}.{kind}", tuple(tensor.shape), torch.float32, tensor))
    return Elementwise(tuple(terms)), inputs
