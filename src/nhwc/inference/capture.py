"""A model as torch.export sees it: one graph of operators, the model itself untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import Node as FxNode
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.held_back import held_back
from nhwc.inference.reasons import example_reason, export_reason
from nhwc.inference.requirements import require_evaluation


@dataclass(frozen=True, eq=False)
class Captured:
    """nodes: the operators in order. constants: of parameters, buffers and lifted tensors, by placeholder.

    They are copies: what becomes of the model afterwards is seen by refreshing alone. owned: placeholders among them
    whose tensors belong to the model. names: of those, in the model. root: what the nodes belong to. arguments: one
    entry per flattened argument: the placeholder of a tensor, or None for a Python value, which ``fixed`` holds.
    outputs: per flattened output a node or a Python value.
    """

    nodes: tuple[FxNode, ...]
    constants: Mapping[FxNode, torch.Tensor]
    owned: frozenset[FxNode]
    names: Mapping[FxNode, str]
    root: torch.fx.GraphModule
    arguments: tuple[FxNode | None, ...]
    fixed: tuple[Any, ...]
    outputs: tuple[Any, ...]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


def export(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.export.ExportedProgram:
    """The model's operators for these arguments, composite ones whole, in place ones as they are.

    Raises EngineError, which names the user's line where there is one, for what torch.export cannot take.
    """
    require_evaluation(model)
    try:
        with torch.no_grad(), held_back():
            program: torch.export.ExportedProgram = torch.export.export(model, tuple(args), dict(kwargs), strict=False)
            return program
    except Exception as error:  # noqa: BLE001 raised again as what it means
        reason, cause = example_reason(model, args, kwargs, error)
        raise EngineError(reason) from cause


def functional(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program without in place operators; composite ones stay whole. Takes torch about as long as the export."""
    try:
        with torch.no_grad(), held_back():
            functional_one: torch.export.ExportedProgram = program.run_decompositions({})
            return functional_one
    except Exception as error:
        raise EngineError(export_reason(error)) from error


def captured(program: torch.export.ExportedProgram) -> Captured:
    """An exported program's graph with its constants looked up.

    Raises EngineError where the model changes its own buffers while it runs.
    """
    signature = program.graph_signature
    if signature.buffers_to_mutate:
        name = next(iter(signature.buffers_to_mutate.values()))
        raise EngineError(f"the model changes its buffer {name} while it runs, and the engine keeps weights constant")
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    constants: dict[FxNode, torch.Tensor] = {}
    names: dict[FxNode, str] = {}
    owned: set[FxNode] = set()
    arguments: list[FxNode | None] = []
    fixed: list[Any] = []
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            python = isinstance(spec.arg, ConstantArgument)
            arguments.append(None if python else node)
            fixed.append(spec.arg.value if isinstance(spec.arg, ConstantArgument) else None)
        else:
            constants[node] = _constant(program, spec).detach().clone()
            if spec.kind != InputKind.CONSTANT_TENSOR:
                owned.add(node)
                names[node] = str(spec.target)
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    mutated = len(signature.user_inputs_to_mutate)  # the engine never writes into its inputs
    return Captured(
        tuple(program.graph.nodes),
        constants,
        frozenset(owned),
        names,
        program.graph_module,
        tuple(arguments),
        tuple(fixed),
        tuple(output.args[0][mutated:]),
        program.call_spec.in_spec,
        program.call_spec.out_spec,
    )


def _constant(program: torch.export.ExportedProgram, spec: Any) -> torch.Tensor:
    held: Any = program.state_dict.get(spec.target, program.constants.get(spec.target))
    if not isinstance(held, torch.Tensor):
        raise EngineError(f"the model holds {spec.target}, a {type(held).__name__}; the engine takes tensors alone")
    return held


def module_path(node: FxNode) -> str:
    """The module that a node comes from, as named_modules has it."""
    stack = node.meta.get("nn_module_stack") or {}
    return list(stack.values())[-1][0] if stack else ""


def source_line(node: FxNode) -> str:
    """File, line and function of the code that a node comes from; empty where torch has not kept it."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    places = [line for line in lines if line.startswith("File ")]
    own = [line for line in places if "/torch/nn/" not in line and "/torch/_" not in line]
    return (own or places or [""])[-1]
