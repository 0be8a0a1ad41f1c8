"""A flatten of pictures before a product takes the order of memory; the product's weights are permuted instead."""

from __future__ import annotations

from dataclasses import replace

import torch

from nhwc.inference.graph import Call, Graph, Node, Value, View
from nhwc.inference.importing.shape import reshaping
from nhwc.inference.operations import Linear


def permute_weights(graph: Graph) -> None:
    """Where only products read a flattened (N, C, *spatial), its pixels come first in each row."""
    producers, users = graph.producers(), graph.users()
    returned = set(graph.output_values())
    for node in list(graph.nodes):
        readers = users.get(node.output, [])
        if not _is_flatten(node) or node.output in returned or not readers:
            continue
        maker = producers.get(node.inputs[0])
        if maker is None or isinstance(maker.work, View | Call) or not all(_is_product(each, node) for each in readers):
            continue
        x = node.inputs[0]
        order = (0, *range(2, len(x.sizes)), 1)
        turned = Value(f"{x.name}.turned", tuple(x.sizes[dim] for dim in order), torch.float32)
        graph.nodes.insert(graph.nodes.index(node), Node(View.permuting(order), [x], turned, path=node.path))
        node.work, node.inputs = reshaping(node.output.sizes), [turned]
        for reader in readers:
            assert isinstance(reader.work, Linear)
            weight = reader.work.weight
            columns = weight.reshape(weight.shape[0], *x.sizes[1:]).permute(order).reshape(weight.shape)
            reader.work = replace(reader.work, weight=columns)


def _is_flatten(node: Node) -> bool:
    if not isinstance(node.work, View) or node.work.kind != "reshape":
        return False
    before, after = node.inputs[0].sizes, node.output.sizes
    if len(before) not in {4, 5} or len(after) != 2 or before[0] != after[0] or before[1] == 1:
        return False
    return before[1] != after[1]  # with one pixel it is free as it is


def _is_product(reader: Node, node: Node) -> bool:
    return isinstance(reader.work, Linear) and reader.inputs[0] is node.output and reader.addend is not node.output
