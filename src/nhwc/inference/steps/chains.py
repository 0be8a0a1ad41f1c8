"""Elementwise chains as instructions of the kernel's interpreter: registers given out, common pairs joined.

The codes and structures mirror ``engine/arithmetic.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from nhwc.inference.native import Activation
from nhwc.inference.operations import Term

MOST_INPUTS = 8
MOST_INSTRUCTIONS = 24


class Kind(IntEnum):
    """The codes of arithmetic.h."""

    COPY = 0
    ADD = 1
    SUBTRACT = 2
    MULTIPLY = 3
    DIVIDE = 4
    MAXIMUM = 5
    MINIMUM = 6
    MULTIPLY_ADD = 7
    ACTIVATE = 8
    POWER = 9
    EXP = 10
    LOG = 11
    SQRT = 12
    RSQRT = 13
    ABS = 14
    NEGATE = 15
    RECIPROCAL = 16
    ERF = 17
    FILL = 18


_BINARY = {Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.MAXIMUM, Kind.MINIMUM, Kind.MULTIPLY_ADD}
_BY_NAME = {
    **{name.lower(): kind for name, kind in Kind.__members__.items()},
    "activation": Kind.ACTIVATE,
    "constant": Kind.FILL,
    "input": Kind.COPY,
}


class Instruction(ctypes.Structure):
    """One instruction; see arithmetic.h."""

    _fields_ = [
        *[(n, ctypes.c_int64) for n in ("kind", "a", "b", "c", "to", "activation", "is_bounded", "is_invariant")],
        ("lo", ctypes.c_double),
        ("hi", ctypes.c_double),
    ]


@dataclass(frozen=True)
class Node:
    """A term on its way to an instruction. operands: places of earlier nodes. bounds: the clamp that follows."""

    kind: Kind
    operands: tuple[int, ...]
    index: int = 0
    activation: Activation = Activation.NONE
    lo: float = 0.0
    hi: float = 0.0
    is_bounded: bool = False
    is_input: bool = False


@dataclass(frozen=True)
class Chain:
    """instructions for the interpreter, and how many registers they use."""

    instructions: tuple[Instruction, ...]
    registers: int


def chain_of(terms: Sequence[Term], is_invariant: Sequence[bool]) -> Chain | None:
    """The terms as instructions; None where they are too many. is_invariant: by input, whether all rows share it."""
    nodes = _live(_joined([_node(term) for term in terms]))
    if nodes[-1].is_input:
        nodes.append(Node(Kind.COPY, (len(nodes) - 1,)))
    if sum(not each.is_input for each in nodes) > MOST_INSTRUCTIONS:
        return None
    return _assigned(nodes, is_invariant)


def _node(term: Term) -> Node:
    kind = _BY_NAME[term.kind]
    if kind == Kind.FILL or kind == Kind.POWER:
        return Node(kind, term.operands, lo=term.value)
    if kind == Kind.ACTIVATE and term.activation == Activation.NONE:
        kind = Kind.COPY
    return Node(kind, term.operands, term.index, term.activation, term.lo, term.hi, is_input=term.kind == "input")


def _uses(nodes: Sequence[Node]) -> list[int]:
    counts = [0] * len(nodes)
    for each in nodes:
        for operand in each.operands:
            counts[operand] += 1
    counts[-1] += 1
    return counts


def _joined(nodes: list[Node]) -> list[Node]:
    """Products that are added to, and results that are clamped, become one instruction."""
    uses = _uses(nodes)
    joined: list[Node] = []
    for each in nodes:
        first = joined[each.operands[0]] if each.operands else each
        alone = bool(each.operands) and uses[each.operands[0]] == 1
        if each.kind == Kind.ACTIVATE and each.activation == Activation.CLAMP and alone and _is_open(first):
            joined.append(replace(first, lo=each.lo, hi=each.hi, is_bounded=True))
        else:
            joined.append(_with_product(each, joined, uses) if each.kind == Kind.ADD else each)
    return joined


def _is_open(node: Node) -> bool:
    return node.kind in _BINARY and not node.is_bounded


def _with_product(add: Node, nodes: Sequence[Node], uses: Sequence[int]) -> Node:
    for product, other in (add.operands, add.operands[::-1]):
        found = nodes[product]
        if found.kind == Kind.MULTIPLY and not found.is_bounded and uses[product] == 1:
            return replace(add, kind=Kind.MULTIPLY_ADD, operands=(*found.operands, other))
    return add


def _live(nodes: list[Node]) -> list[Node]:
    """Without what nothing reads any more."""
    needed = {len(nodes) - 1}
    for place in reversed(range(len(nodes))):
        if place in needed:
            needed.update(nodes[place].operands)
    places = {old: new for new, old in enumerate(sorted(needed))}
    return [replace(nodes[old], operands=tuple(places[each] for each in nodes[old].operands)) for old in places]


def _assigned(nodes: Sequence[Node], is_invariant: Sequence[bool]) -> Chain:
    last_use = {operand: place for place, each in enumerate(nodes) for operand in each.operands}
    inputs, shared = len(is_invariant), [False] * len(nodes)
    where = [0] * len(nodes)
    free: list[int] = []
    registers = 0
    instructions = []
    for place, each in enumerate(nodes):
        shared[place] = is_invariant[each.index] if each.is_input else all(shared[operand] for operand in each.operands)
        if each.is_input:
            where[place] = each.index
            continue
        is_last = place == len(nodes) - 1
        operands = [where[operand] for operand in each.operands]
        # what all rows share keeps its register for them
        over = [old for old in each.operands if last_use[old] == place and not nodes[old].is_input]
        free += sorted({where[old] - inputs for old in over if not shared[old]})
        if is_last:
            shared[place], to = False, -1
        elif free and not shared[place]:
            to = free.pop()
        else:
            to, registers = registers, registers + 1
        where[place] = inputs + to
        first = operands[0] if operands else 0
        a, b, c = (operands + [first] * 3)[:3]
        instructions.append(
            Instruction(each.kind, a, b, c, to, each.activation, each.is_bounded, shared[place], each.lo, each.hi)
        )
    return Chain(tuple(instructions), registers)
