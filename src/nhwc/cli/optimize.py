"""``nhwc optimize TARGET``: what makes a model fastest here, proved by measurement and verification."""

import json
from pathlib import Path
from typing import Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.exits import one_sentence, say
from nhwc.cli.inputs import batch_sizes, parse_input, random_input
from nhwc.cli.measuring import share
from nhwc.cli.options import (
    AmpOption,
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
    list[Path],
    typer.Option(
        "--plan", metavar="FILE", help="Try this plan, as --save-plan wrote it, edited or not. Again for other shapes."
    ),
]
SavePlanOption = Annotated[
    Path | None,
    typer.Option("--save-plan", metavar="FILE", help="Write the plan as JSON; those of other shapes beside it."),
]
BatchesOption = Annotated[
    str | None, typer.Option("--batches", metavar="1,8", help="Plan and prove it for these batch sizes too.")
]
ShapesOption = Annotated[
    list[str],
    typer.Option(
        "--shapes", metavar="SHAPE", help="Plan and prove it for this input too, 2x3x320x320; again for more."
    ),
]
BudgetOption = Annotated[float, typer.Option("--budget", metavar="SECONDS", help="Of measuring all candidates.")]
MarginOption = Annotated[str, typer.Option("--margin", help="Widen every interval by it, either way.")]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json", help="Of the report.")]


def optimize(
    target: TargetArgument,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    batches: BatchesOption = None,
    shapes: ShapesOption = [],  # noqa: B006 - typer copies it
    train: TrainOption = False,
    amp: AmpOption = None,
    candidates: CandidatesOption = None,
    plan: PlanOption = [],  # noqa: B006 - typer copies it
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
        dtype = preparation.amp_dtype(amp)
        sizes = batch_sizes(batches)
        others = [parse_input(text, "--shapes") for text in shapes]
        if save_plan is not None:
            output.check_writable(save_plan, "--save-plan")
        given = [load_plan(each) for each in plan] or None
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

        import torch

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
                shapes=[(random_input(each).to(device),) for each in others],
                batches=sizes,
                amp=None if dtype is None else getattr(torch, dtype),
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
            found_plans = [report.plan, *(each.plan for each in report.others if each.plan is not None)]
            for number, each in enumerate(found_plans, start=1):
                path = save_plan if number == 1 else save_plan.with_stem(f"{save_plan.stem}-{number}")
                path.write_text(json.dumps(dump_plan(each), indent=1) + "\n", encoding="utf-8")
                say(f"wrote {path}")
        elif save_plan is not None:
            say(f"there is no plan to write to {save_plan}; the notes of the report say why")
