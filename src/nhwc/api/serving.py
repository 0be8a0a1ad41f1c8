"""``nhwc.engine`` and ``nhwc.load_engine``: a model made ready for inference on the CPU, in channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from nhwc import __version__, engine_report
from nhwc.api.showing import Showing
from nhwc.inference import module, saving
from nhwc.inference.contents import Contents, Origin
from nhwc.inference.making import Wishes, chooser_for, contents_for
from nhwc.machine import LoadMeter, conditions, processor_name
from nhwc.measure.stability import load_sentences
from nhwc.progress import Progress, quiet
from nhwc.report.engine.summary import headline
from nhwc.schema import load_engine_report as read_report
from nhwc.timing import Benchmark, Load


@dataclass(frozen=True, repr=False)
class EngineReport(Showing, engine_report.EngineReport):
    """What an engine runs and takes, step by step, that shows itself: in a terminal, and in a file."""

    _kind = "engine"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.target}: {headline(self)}>"

    def with_benchmark(self, benchmark: Benchmark) -> EngineReport:
        """The same with a measurement of the engine against others."""
        plain = Benchmark(**{field.name: getattr(benchmark, field.name) for field in fields(Benchmark)})
        return replace(self, benchmark=plain)


class Engine(module.Engine):
    """The model made ready for inference on the CPU. Called like the model; safe from many Python threads at once.

    Inputs that it was not built for run through the original model, with one warning at the call that says what
    differs. Gradients do not flow through it. Raises EngineError where an input asks for them, in training mode, and
    for inputs that the original model does not take or is not there for.
    """

    def report(self, *inputs: Any, kwargs: Mapping[str, Any] | None = None, repeats: int = 10) -> EngineReport:
        """What every step runs and takes, measured in ``repeats`` whole calls on the current number of threads.

        inputs, kwargs: arguments that it was built for, by default the example that it was first built with, or noise
        like it. Where other processes, the hypervisor or a CPU limit took time from it, a note says so.
        Raises EngineError for arguments that it was not built for.
        """
        meter = LoadMeter()
        found = super().report(*inputs, kwargs=kwargs, repeats=repeats)
        notes = (*found.notes, *_noise(meter.read(found.threads)))
        return _report(replace(found, conditions=conditions(torch.device("cpu")), notes=notes))


def engine(
    model: torch.nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    exact: bool = False,
    budget_s: float = 15.0,
    threads: int | None = None,
    shapes: Sequence[Sequence[Any]] = (),
    batches: Sequence[int] = (),
    weights: torch.dtype | None = None,
    keep_model: bool = True,
    target: str = "",
    progress: Progress | None = None,
) -> Engine:
    """The model as a module for inference on the CPU: called like the model, the same numbers, sooner.

    model: in evaluation mode, on the CPU; compiled kernels take float32. inputs, kwargs: example arguments, by place
    and by name as calls will give them; the shapes and dtypes of tensors, and other values, are what it is built for.
    exact: no algorithm that changes the rounding of single products (Winograd's). budget_s: seconds for timing
    algorithms. threads: how many it is tuned for, by default as many as torch has. shapes: further example arguments,
    a tuple for each. batches: batch sizes to build for besides the example's; a call takes the next larger one.
    weights: torch.bfloat16 or torch.float16, to which linear layers round their weights where reading them so measures
    faster; sums stay float32. keep_model: whether the engine holds the model, for inputs of other shapes, other numbers
    of threads and refresh. target: its name in reports, by default the model's class. progress: told of
    (stage, done, total).

    Raises EngineError for a model in training mode, on another device, or that torch.export cannot take, and for an
    example that the model does not take.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    >>> picture = torch.randn(1, 3, 16, 16)
    >>> fast = engine(model, picture)
    >>> torch.allclose(fast(picture), model(picture), atol=1e-5)
    True
    """
    wishes = Wishes(exact, budget_s, threads, shapes, batches, weights)
    made = contents_for(model, inputs, kwargs or {}, wishes, target, _here(), progress or quiet)
    found = _engine(model, made)
    if not keep_model:
        found.release()
    return found


def load_engine(path: str | Path, *, budget_s: float = 15.0, progress: Progress | None = None) -> Engine:
    """The engine that ``engine.save(path)`` wrote: ready in milliseconds, without the model's code.

    Weights are checked for damage and stay in the file, mapped. Where the steps cannot run here (another instruction
    set, another nhwc), algorithms are chosen anew, within ``budget_s`` seconds; the engine can be saved again then.

    Raises SchemaError for a file that is not ours, is damaged or comes from a newer nhwc; EngineError where it can not
    run here, with the reason.
    """
    here = _here()
    return _engine(
        None, saving.read(Path(path), here, lambda: chooser_for(here.processor, budget_s), progress or quiet)
    )


def load_engine_report(source: Mapping[str, Any] | str | Path) -> EngineReport:
    """The report saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    return _report(read_report(source))


def _noise(load: Load | None) -> tuple[str, ...]:
    """One sentence where the machine did something else while steps and limits were measured."""
    sentences = [] if load is None else load_sentences(load)
    return (f"times and shares are noisy: {'; '.join(sentences)}",) if sentences else ()


def _report(found: engine_report.EngineReport) -> EngineReport:
    return EngineReport(**{field.name: getattr(found, field.name) for field in fields(engine_report.EngineReport)})


def _engine(model: torch.nn.Module | None, made: Contents) -> Engine:
    return Engine(model, made.specializations, made.buckets, made.accuracy, made.target, made.origin)


def _here() -> Origin:
    return Origin.here(processor_name(), __version__)
