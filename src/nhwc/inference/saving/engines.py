"""An engine as a document: its plans for every signature and number of threads, and where they were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nhwc.engine_report import Accuracy
from nhwc.errors import EngineError
from nhwc.inference.building import Plan, assembled, runner
from nhwc.inference.choosing import Chooser
from nhwc.inference.contents import Contents, Origin, Ready
from nhwc.inference.loaded import Loaded
from nhwc.inference.requesting import steps_for
from nhwc.inference.saving import files
from nhwc.inference.saving.arguments import Reader, Writer
from nhwc.inference.saving.constants import Constants, Kept
from nhwc.inference.saving.plans import PlanReader, PlanWriter
from nhwc.inference.specialization import signature_of
from nhwc.progress import Progress
from nhwc.schema.document import load_document
from nhwc.schema.typed import Reader as TypedReader
from nhwc.schema.typed import plain

VERSION = 1


def write(path: Path, contents: Contents, *, portable: bool) -> None:
    """Write an engine to one file. portable: with the weights as they were, so that other machines can choose anew.

    Raises EngineError for what cannot be saved, and where the file cannot be written.
    """
    document, tensors = _document(contents, portable=portable)
    files.write(path, document, tensors)


def released(contents: Contents) -> Contents:
    """The same without the model's own weights: what a file would hold, in memory."""
    document, tensors = _document(contents, portable=False)
    return _contents(document, Reader(Kept(tensors)), contents.origin, with_steps=True)


def read(path: Path, here: Origin, chooser: Callable[[], Chooser], progress: Progress) -> Contents:
    """Read a file. chooser: for algorithms that must be chosen anew.

    Raises SchemaError for a file that is not ours, damaged or newer, EngineError where it cannot run here.
    """
    document, tensors = files.read(path)

    def load(found: Mapping[str, Any]) -> tuple[Contents, bool]:
        try:
            return _found(found, Kept(tensors), path, here)
        except (IndexError, ValueError) as error:
            raise TypeError(str(error)) from error  # damage, as load_document tells it

    remedy = "build the engine and save it again"
    contents, runs_here = load_document(document, files.FORMAT, {VERSION: load}, remedy=remedy)
    if not runs_here:
        found = chooser()
        try:
            for each in (*contents.specializations, *contents.buckets):
                _retune(each, found, progress)
        finally:
            found.measured.save()
    loaded: Contents = contents
    return loaded


def _document(contents: Contents, *, portable: bool) -> tuple[dict[str, Any], list[torch.Tensor]]:
    constants = Constants()
    writer = Writer(constants, portable)
    ready = (*contents.specializations, *contents.buckets)
    document = {
        "format": files.FORMAT,
        "version": VERSION,
        "target": contents.target,
        "origin": asdict(contents.origin),
        "portable": portable and all(_has_weights(each) for each in ready),
        "accuracy": plain(contents.accuracy),
        "specializations": [_written(each, writer) for each in contents.specializations],
        "buckets": [_written(each, writer) for each in contents.buckets],
    }
    return document, constants.tensors


def _has_weights(specialization: Ready) -> bool:
    return not isinstance(specialization, Loaded) or specialization.has_weights


def _written(specialization: Ready, writer: Writer) -> dict[str, Any]:
    captured = specialization.captured
    return {
        "signature": [_entry(each, writer) for each in specialization.signature],
        "in_spec": _spec_text(captured.in_spec, "takes"),
        "out_spec": _spec_text(captured.out_spec, "returns"),
        "tensors": list(specialization.tensors),
        "exact": specialization.exact,
        "build_s": specialization.build_s,
        "plans": [
            {"threads": threads, **PlanWriter(writer).write(plan)}
            for threads, plan in list(specialization.plans.items())  # a call may add one meanwhile
        ],
    }


def _entry(entry: Any, writer: Writer) -> dict[str, Any]:
    """One argument of a signature: a tensor's shape and type, or a plain value."""
    if not isinstance(entry, tuple):
        raise EngineError(
            "the engine cannot be saved: it was built for an argument that is no tensor and no plain value"
        )
    first, second = entry
    if isinstance(second, torch.dtype) and isinstance(first, torch.Size):
        return {"shape": list(first), "dtype": writer.value(second, None)}
    return {"value": writer.value(second, None)}


def _spec_text(spec: pytree.TreeSpec, verb: str) -> str:
    try:
        return pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise EngineError(f"the engine cannot be saved: the model {verb} a type that has no name: {error}") from error


def _found(document: Mapping[str, Any], kept: Kept, path: Path, here: Origin) -> tuple[Contents, bool]:
    """What a document holds, and whether its steps run here; else there are none."""
    origin = Origin(**document["origin"])
    obstacle = origin.obstacle(here)
    if obstacle and not (document["portable"] and here.instruction_set):
        left = (
            "" if document["portable"] else ", and it was saved without the weights to choose others (portable=False)"
        )
        raise EngineError(f"the engine in {str(path)!r} cannot run here: {obstacle}{left}; build it where it runs")
    return _contents(document, Reader(kept), here if obstacle else origin, with_steps=not obstacle), not obstacle


def _contents(document: Mapping[str, Any], reader: Reader, origin: Origin, *, with_steps: bool) -> Contents:
    def loaded(name: str) -> tuple[Loaded, ...]:
        return tuple(_specialization(each, reader, with_steps, document["portable"]) for each in document[name])

    accuracy = document["accuracy"]
    measured: Accuracy | None = None if accuracy is None else TypedReader().read_fields(Accuracy, accuracy)
    return Contents(loaded("specializations"), loaded("buckets"), measured, document["target"], origin)


def _specialization(document: Mapping[str, Any], reader: Reader, with_steps: bool, has_weights: bool) -> Loaded:
    arguments = [
        torch.empty((), dtype=reader.value(each["dtype"]), device="cpu").expand(each["shape"])
        if "shape" in each
        else reader.value(each["value"])
        for each in document["signature"]
    ]
    signature = signature_of(arguments)
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
        if item.is_native and not steps_for(item.request(threads, item.node in plan.exact)):
            raise EngineError(
                f"no algorithm here runs {type(item.work).__name__} of {item.node.path or 'the model'} as the saved "
                "plan has it; build the engine here"
            )
