"""Pointwise operations that follow each other become one, which reads and writes memory once."""

from __future__ import annotations

from dataclasses import replace

from nhwc.inference.graph import Graph, Node, Value
from nhwc.inference.operations import Elementwise, Term

_MOST_INPUTS = 8
_MOST_TERMS = 24


def merge(graph: Graph) -> None:
    """Take the makers of a pointwise operation's operands into it, where nothing else reads them."""
    producers, users = graph.producers(), graph.users()
    gone: set[Node] = set()
    for node in graph.nodes:
        position = 0
        while isinstance(node.work, Elementwise) and position < len(node.inputs):
            value = node.inputs[position]
            maker = producers.get(value)
            merged = None
            if maker is not None and _is_mergeable(maker, node) and graph.single_user(value, users) is node:
                merged = _merged(maker, node, position)
            if maker is not None and merged is not None:
                node.work, node.inputs = merged
                for each in maker.inputs:
                    users[each] = [node if user is maker else user for user in users[each]]
                gone.add(maker)
            else:
                position += 1
    graph.nodes = [node for node in graph.nodes if node not in gone]


def _is_mergeable(maker: Node, node: Node) -> bool:
    return isinstance(maker.work, Elementwise) and maker.is_plain and maker.output.shape == node.output.shape


def _merged(maker: Node, node: Node, position: int) -> tuple[Elementwise, list[Value]] | None:
    """The maker's terms, then the node's, which read the maker's last one where they read its value."""
    assert isinstance(maker.work, Elementwise)
    assert isinstance(node.work, Elementwise)
    inputs = [value for place, value in enumerate(node.inputs) if place != position]
    inputs += [value for value in maker.inputs if value not in inputs]
    terms = [_indexed(term, maker.inputs, inputs) for term in maker.work.terms]
    places: dict[int, int] = {}
    last = len(terms) - 1
    for place, term in enumerate(node.work.terms):
        if term.kind == "input" and term.index == position:
            places[place] = last
            continue
        places[place] = len(terms)
        operands = tuple(places[operand] for operand in term.operands)
        terms.append(replace(_indexed(term, node.inputs, inputs), operands=operands))
    if len(inputs) > _MOST_INPUTS or len(terms) > _MOST_TERMS:
        return None
    return Elementwise(tuple(terms)), inputs


def _indexed(term: Term, old: list[Value], new: list[Value]) -> Term:
    return replace(term, index=new.index(old[term.index])) if term.kind == "input" else term
