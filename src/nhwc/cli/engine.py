"""``nhwc engine TARGET``: build the engine of a model, verify it, set it against eager and compiled, and save it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.exits import ExitCode, one_sentence, say
from nhwc.cli.inputs import batch_sizes
from nhwc.cli.options import (
    BatchOption,
    DebugOption,
    ImagesOption,
    InputOption,
    SeedOption,
    TargetArgument,
    ThreadsOption,
)
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from nhwc.api.benching import BenchReport
    from nhwc.api.serving import Engine, EngineReport
    from nhwc.cli.targets import Target

ExactOption = Annotated[
    bool, typer.Option("--exact", help="No algorithm that changes the rounding of single products.")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="bf16|fp16",
        help="Linear layers may round their weights to this type where it measures faster.",
    ),
]
BudgetOption = Annotated[
    float, typer.Option("--budget", metavar="SECONDS", help="For timing algorithms, where no cache knows them.")
]
BatchesOption = Annotated[str | None, typer.Option("--batches", metavar="1,8", help="Build for these batch sizes too.")]
BenchOption = Annotated[
    float, typer.Option("--bench", metavar="SECONDS", help="For setting it against eager and compiled; 0 does not.")
]
SaveOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Save the engine here, for nhwc.load_engine."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]

#: What the engine is set against, by the names in the report.
_PEERS = {"contiguous": "contiguous", "channels_last": "channels_last", "compiled": "channels_last+compile"}


def engine(
    target: TargetArgument,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    batches: BatchesOption = None,
    exact: ExactOption = False,
    weights: WeightsOption = None,
    budget: BudgetOption = 15.0,
    bench: BenchOption = 20.0,
    save: SaveOption = None,
    json: JsonOption = False,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    debug: DebugOption = False,
) -> None:
    """Build the engine of a model for inference on the CPU, and say what it runs, how well, and how fast.

    Exit codes: 0 fine, 1 its results lie outside the bound, 2 bad input, 3 a fault in nhwc, 130 interrupted,
    141 the reader of the output left before its end.
    """
    with one_sentence(debug):
        sizes = batch_sizes(batches)
        for option, seconds in (("--budget", budget), ("--bench", bench)):
            if not 0 <= seconds < float("inf"):
                raise TargetError(f"{option} {seconds:g} is no number of seconds; give one from 0")
        if save is not None:
            if save.is_dir():
                raise TargetError(f"-o {save} is a folder; name a file in it, such as {save / 'model.engine'}")
            output.check_writable(save)
        asked = preparation.request(
            target, input_=input_, images=images, batch=batch, train=False, device="cpu", threads=threads, seed=seed
        )

        from nhwc import api

        narrow = _narrow(weights)
        with output.progress_line(f"building {target}") as progress:
            chosen = preparation.prepare(asked)
            chosen.model.eval()
            made = api.engine(
                chosen.model,
                *(chosen.inputs or ()),
                kwargs=chosen.keywords,
                exact=exact,
                weights=narrow,
                budget_s=budget,
                batches=sizes,
                target=chosen.name,
                progress=progress,
            )
            progress("measuring every step", 0, 1)
            report = made.report(*(chosen.inputs or ()), kwargs=chosen.keywords)
            if bench:
                report = report.with_benchmark(_benched(chosen, made, bench, seed, progress))
        _show(report, json)
        if save is not None:
            made.save(save)
            say(f"wrote {save}")
        accuracy = report.accuracy
        if accuracy is not None and not accuracy.reason and not accuracy.holds:
            say("the engine's results lie outside the bound of its error; please report it")
            raise typer.Exit(ExitCode.CONDITION_HOLDS)


def _narrow(weights: str | None) -> torch.dtype | None:
    import torch

    known = {None: None, "fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    if weights not in known:
        raise TargetError(f"--weights {weights}: give bf16 or fp16")
    return known[weights]


def _benched(
    chosen: Target, made: Engine, budget_s: float, seed: int, progress: Callable[[str, int, int], None]
) -> BenchReport:
    from nhwc import api

    return api.bench(
        chosen.model,
        *(chosen.inputs or ()),
        kwargs=chosen.keywords,
        variants={**_PEERS, "engine": made},
        budget_s=budget_s,
        seed=seed,
        target=chosen.name,
        progress=progress,
    )


def _show(report: EngineReport, json: bool) -> None:
    from nhwc.report.engine.to_terminal import print_engine_report

    formats = "json" if json else None
    output.emit(report.render, lambda console: print_engine_report(report, console), (), formats)
