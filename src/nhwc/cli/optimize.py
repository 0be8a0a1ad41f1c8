"""``nhwc optimize TARGET``: what makes a model fastest here, proved by measurement and verification."""

import json
from pathlib import Path
from typing import Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.exits import one_sentence, say
from nhwc.cli.measuring import share
from nhwc.cli.options import (
    BatchOption,
    DebugOption,
    DeviceOption,
    ImagesOption,
    InputOption,
    OutputOption,
    SeedOption,
    TargetArgument,
    ThreadsOption,
)
from nhwc.errors import TargetError

TrainOption = Annotated[bool, typer.Option("--train", help="Optimize training steps instead of forward passes.")]
CandidatesOption = Annotated[
    str | None,
    typer.Option("--candidates", metavar="A,B", help="channels_last+kernels, engine, channels_last+compile, ..."),
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Try this plan, as --save-plan wrote it, edited or not.")
]
SavePlanOption = Annotated[Path | None, typer.Option("--save-plan", metavar="FILE", help="Write the plan as JSON.")]
BudgetOption = Annotated[float, typer.Option("--budget", metavar="SECONDS", help="Of measuring all candidates.")]
MarginOption = Annotated[str, typer.Option("--margin", help="Widen every interval by it, either way.")]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json", help="Of the report.")]


def optimize(
    target: TargetArgument,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    train: TrainOption = False,
    candidates: CandidatesOption = None,
    plan: PlanOption = None,
    save_plan: SavePlanOption = None,
    budget: BudgetOption = 60.0,
    margin: MarginOption = "5%",
    device: DeviceOption = "cpu",
    format_: FormatOption = None,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    debug: DebugOption = False,
) -> None:
    """Measure the arrangements of a model, and say which one nhwc.optimize would put on it, and why.

    Exit codes: 0 fine, whether one was chosen or not, 2 bad input, 3 a fault in nhwc, 130 interrupted, 141 the reader
    of the output left before its end.
    """
    with one_sentence(debug):
        # What needs no torch comes first, so that a typing error is told at once.
        from nhwc.report import registry
        from nhwc.report.optimization import to_terminal
        from nhwc.schema import dump_plan, load_plan

        specs = None if candidates is None else [spec.strip() for spec in candidates.split(",") if spec.strip()]
        if candidates is not None and not specs:
            raise TargetError("--candidates names none; give engine, or several joined by commas")
        if not 0 < budget < float("inf"):
            raise TargetError(f"--budget {budget:g} is no number of seconds above 0")
        smallest = share("--margin", margin)
        if save_plan is not None:
            output.check_writable(save_plan, "--save-plan")
        given = None if plan is None else load_plan(plan)
        asked = preparation.request(
            target,
            input_=input_,
            images=images,
            batch=batch,
            train=train,
            device=device,
            threads=threads,
            seed=seed,
        )
        files = output.plan_files(output_, format_, registry.formats("optimization"))

        from nhwc import api

        with output.progress_line(f"building {target}") as progress:
            chosen = preparation.prepare(asked)
            chosen.model.train(train)
            found = api.optimize(
                chosen.model,
                *(chosen.inputs or ()),
                kwargs=chosen.keywords,
                train=train,
                candidates=specs,
                plan=given,
                budget_s=budget,
                margin=smallest,
                seed=seed,
                target=chosen.name,
                progress=progress,
            )
            report = api.optimization_of(found)
        output.emit(
            report.render,
            lambda console: to_terminal.print_optimization(report, console),
            files,
            format_,
        )
        if save_plan is not None and report.plan is not None:
            save_plan.write_text(json.dumps(dump_plan(report.plan), indent=1) + "\n", encoding="utf-8")
            say(f"wrote {save_plan}")
        elif save_plan is not None:
            say(f"there is no plan to write to {save_plan}; the notes of the report say why")
