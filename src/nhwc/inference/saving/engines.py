"""An engine as a document: its plans for every signature and number of threads, and the machine that they were made on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.errors import EngineError
from nhwc.inference.building import Plan, assembled, runner
from nhwc.inference.choosing import Chooser, Progress
from nhwc.inference.loaded import Loaded
from nhwc.inference.saving import files
from nhwc.inference.saving.arguments import Reader, Writer
from nhwc.inference.saving.constants import Constants, Kept
from nhwc.inference.saving.plans import PlanReader, PlanWriter
from nhwc.inference.specialization import Specialization
from nhwc.inference.steps.registry import candidates
from nhwc.kernels.native.library import INTERFACE, status
from nhwc.schema.document import load_document

VERSION = 1


@dataclass(frozen=True)
class Origin:
    """What a plan's steps were made for. nhwc, interface, instruction_set: must be the same for them to run."""

    nhwc: str
    interface: int
    instruction_set: str
    processor: str
    torch: str

    @classmethod
    def here(cls, processor: str, nhwc: str) -> Origin:
        return cls(nhwc, INTERFACE, status().instruction_set, processor, torch.__version__)

    def obstacle(self, here: Origin) -> str:
        """Why steps that were made there cannot run here; empty where they can."""
        if self.instruction_set != here.instruction_set:
            found = here.instruction_set or "no compiled library"
            return f"its steps are compiled for {self.instruction_set}, and here is {found}"
        if self.interface != here.interface or self.nhwc != here.nhwc:
            return f"its steps were made by nhwc {self.nhwc} (library {self.interface}), and here is {here.nhwc}"
        return ""


@dataclass(frozen=True)
class Saved:
    """What a file held. origin: where its steps were made; retuned: why algorithms were chosen anew, else empty."""

    specializations: tuple[Loaded, ...]
    target: str
    origin: Origin
    retuned: str


def write(
    path: Path, specializations: Sequence[Specialization | Loaded], target: str, here: Origin, *, portable: bool
) -> None:
    """Write an engine to one file. portable: with the weights as they were, so that other machines can choose anew.

    Raises EngineError for what cannot be saved, and where the file cannot be written.
    """
    document, tensors = _document(specializations, target, here, portable=portable)
    files.write(path, document, tensors)


def as_loaded(specializations: Sequence[Specialization | Loaded], target: str, here: Origin) -> tuple[Loaded, ...]:
    """The same without the model's own weights: what a file would hold, in memory."""
    document, tensors = _document(specializations, target, here, portable=False)
    reader = Reader(Kept(tensors))
    return tuple(_specialization(each, reader, with_steps=True) for each in document["specializations"])


def read(path: Path, here: Origin, chooser: Callable[[], Chooser], progress: Progress) -> Saved:
    """Read a file. chooser: for algorithms that must be chosen anew.

    Raises SchemaError for a file that is not ours, damaged or newer, EngineError where it cannot run here.
    """
    document, tensors = files.read(path)

    def load(found: Mapping[str, Any]) -> Saved:
        try:
            return _saved(found, Kept(tensors), path, here)
        except (IndexError, ValueError) as error:
            raise TypeError(str(error)) from error  # damage, as load_document tells it

    loaded: Saved = load_document(document, files.FORMAT, {VERSION: load}, remedy="build the engine and save it again")
    if loaded.retuned:
        found = chooser()
        for each in loaded.specializations:
            _retune(each, found, progress)
        found.measured.save()
    return loaded


def _document(
    specializations: Sequence[Specialization | Loaded], target: str, here: Origin, *, portable: bool
) -> tuple[dict[str, Any], list[torch.Tensor]]:
    constants = Constants()
    writer = Writer(constants, portable)
    document = {
        "format": files.FORMAT,
        "version": VERSION,
        "target": target,
        "origin": asdict(here),
        "portable": portable and all(_has_weights(each) for each in specializations),
        "specializations": [_written(each, writer) for each in specializations],
    }
    return document, constants.tensors


def _has_weights(specialization: Specialization | Loaded) -> bool:
    return not isinstance(specialization, Loaded) or specialization.has_weights


def _written(specialization: Specialization | Loaded, writer: Writer) -> dict[str, Any]:
    captured = specialization.captured
    return {
        "signature": [
            {"tensor": [list(each[0]), writer.value(each[1], None)]} if _is_tensor(each) else writer.value(each, None)
            for each in specialization.signature
        ],
        "in_spec": _spec_text(captured.in_spec, "takes"),
        "out_spec": _spec_text(captured.out_spec, "returns"),
        "tensors": list(specialization.tensors),
        "exact": specialization.exact,
        "build_s": specialization.build_s,
        "plans": [
            {"threads": threads, **PlanWriter(writer).write(plan)} for threads, plan in specialization.plans.items()
        ],
    }


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], torch.dtype)


def _spec_text(spec: pytree.TreeSpec, verb: str) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise EngineError(f"the engine cannot be saved: the model {verb} a type that has no name: {error}") from error


def _saved(document: Mapping[str, Any], kept: Kept, path: Path, here: Origin) -> Saved:
    """What a document holds; without runners where algorithms must be chosen anew."""
    origin = Origin(**document["origin"])
    obstacle = origin.obstacle(here)
    if obstacle and not (document["portable"] and here.instruction_set):
        left = "" if document["portable"] else ", and it was saved without the weights to choose others (portable=False)"
        raise EngineError(f"the engine in {str(path)!r} cannot run here: {obstacle}{left}; build it where it runs")
    reader = Reader(kept)
    loaded = tuple(
        _specialization(each, reader, with_steps=not obstacle, has_weights=document["portable"])
        for each in document["specializations"]
    )
    return Saved(loaded, document["target"], here if obstacle else origin, obstacle)


def _specialization(
    document: Mapping[str, Any], reader: Reader, *, with_steps: bool, has_weights: bool = False
) -> Loaded:
    signature = tuple(
        (tuple(each["tensor"][0]), reader.value(each["tensor"][1]))
        if isinstance(each, dict) and isinstance(each.get("tensor"), list)
        else reader.value(each)
        for each in document["signature"]
    )
    in_spec, out_spec = (pytree.treespec_loads(document[name]) for name in ("in_spec", "out_spec"))
    loaded = Loaded(signature, in_spec, out_spec, document["tensors"], document["exact"], document["build_s"])
    loaded.has_weights = has_weights
    for each in document["plans"]:
        plan = PlanReader(each, reader).read(with_steps)
        loaded.plans[each["threads"]] = plan
        if with_steps:
            loaded.runners[each["threads"]] = assembled(plan, each["threads"])
    return loaded


def _retune(loaded: Loaded, chooser: Chooser, progress: Progress) -> None:
    for threads, plan in loaded.plans.items():
        _require_candidates(plan, threads)
        loaded.runners[threads] = runner(plan, threads, chooser, progress)


def _require_candidates(plan: Plan, threads: int) -> None:
    for item in plan.placement.items:
        if item.is_native and not candidates(item.request(threads, item.node in plan.exact)):
            raise EngineError(
                f"no algorithm here runs {type(item.work).__name__} of {item.node.path or 'the model'} as the saved plan "
                "has it; build the engine here"
            )

