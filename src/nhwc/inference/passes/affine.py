"""What scales and shifts channels: folded into neighbouring weights, in float64, or made a pointwise operation."""

from __future__ import annotations

from dataclasses import replace

import torch

from nhwc.inference.graph import Affine, Graph, Node, Value
from nhwc.inference.operations import Convolution, Elementwise, Linear, Term


def fold(graph: Graph) -> None:
    """Scales and shifts go into the weights of what comes before, else, where that is exact, of what comes after."""
    producers, users = graph.producers(), graph.users()
    gone: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node.work, Affine):
            continue
        before = producers.get(node.inputs[0])
        if before is None or graph.single_user(node.inputs[0], users) is not node or not before.is_plain:
            continue
        merged = _after(before, node.work)
        if merged is not None:
            before.work, before.output = merged, node.output
            producers[node.output] = before
            gone.add(node)
    graph.nodes = [node for node in graph.nodes if node not in gone]
    _fold_into_next(graph)


def _after(before: Node, affine: Affine) -> Convolution | Linear | Affine | None:
    """The work of ``before`` with what follows it folded in."""
    work = before.work
    if isinstance(work, Affine) and work.dim == affine.dim:
        return Affine(work.scale * affine.scale, work.shift * affine.scale + affine.shift, affine.dim)
    if isinstance(work, Convolution) and affine.dim == 1:
        return _scaled_convolution(work, affine)
    if isinstance(work, Linear) and affine.dim == before.axis:
        weight = work.weight.double() * affine.scale[:, None]
        return Linear(weight.float(), _shifted(work.bias, affine))
    return None


def _scaled_convolution(work: Convolution, affine: Affine) -> Convolution:
    weight = work.weight.double()
    if work.transposed:  # (C, K / groups, *kernel): the results of group g are its columns
        scale = affine.scale.view(work.groups, 1, -1, *[1] * (weight.dim() - 2))
        grouped = weight.view(work.groups, weight.shape[0] // work.groups, *weight.shape[1:])
        weight = (grouped * scale).view(weight.shape)
    else:
        weight = weight * affine.scale.view(-1, *[1] * (weight.dim() - 1))
    return replace(work, weight=weight.float(), bias=_shifted(work.bias, affine))


def _shifted(bias: torch.Tensor | None, affine: Affine) -> torch.Tensor:
    return (affine.shift if bias is None else bias.double() * affine.scale + affine.shift).float()


def _fold_into_next(graph: Graph) -> None:
    users = graph.users()
    for node in graph.nodes:
        if isinstance(node.work, Affine):
            after = graph.single_user(node.output, users)
            if after is not None and after.inputs == [node.output] and after.addend is not node.output:
                merged = _before(after, node.work)
                if merged is not None:
                    after.work, after.inputs = merged, list(node.inputs)


def _before(after: Node, affine: Affine) -> Convolution | Linear | None:
    """The work of ``after`` with what comes before it folded in; padding would have to be shifted too."""
    work = after.work
    if isinstance(work, Linear) and affine.dim == after.axis:
        weight = work.weight.double()
        bias = weight @ affine.shift + (0.0 if work.bias is None else work.bias.double())
        return Linear((weight * affine.scale).float(), bias.float())
    if isinstance(work, Convolution) and affine.dim == 1 and not work.transposed:
        if any(work.padding) and bool((affine.shift != 0).any()):
            return None
        weight, groups = work.weight.double(), work.groups
        per_group = (groups, 1, -1, *[1] * (weight.dim() - 2))
        grouped = weight.view(groups, -1, *weight.shape[1:])
        summed = (grouped * affine.shift.view(per_group)).flatten(2).sum(2).flatten()
        bias = summed + (0.0 if work.bias is None else work.bias.double())
        scaled = (grouped * affine.scale.view(per_group)).view(weight.shape)
        return replace(work, weight=scaled.float(), bias=bias.float())
    return None


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
