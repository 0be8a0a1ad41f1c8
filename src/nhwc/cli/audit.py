"""``nhwc audit TARGET``: run one step of a model and say where it loses its memory format."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.conditions import Condition, parse_condition, refuse_unanswerable
from nhwc.cli.exits import ExitCode, one_sentence, say
from nhwc.cli.kernels import KernelsOption, kernel_names
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

if TYPE_CHECKING:
    from nhwc.api import AuditReport

TrainOption = Annotated[bool, typer.Option("--train", help="Audit a training step: forward, and backward from ones.")]
AsIsOption = Annotated[
    bool, typer.Option("--as-is", help="Audit the model in the format it has, instead of in channels last.")
]
CompileOption = Annotated[bool, typer.Option("--compile", help="Audit what torch.compile makes of the model.")]
StaticOption = Annotated[bool, typer.Option("--static", help="Compute nothing: follow the layouts on fake tensors.")]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json|html", help="Of the report.")]
FailOption = Annotated[
    list[str], typer.Option("--fail-on", metavar="CONDITION", help="Exit with 1 on a rule, 1MB, 5% or any.")
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Show this plan on the HTML page's strip.")
]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=0, help="Timings per operator; 0 measures no time.")]


def audit(
    target: TargetArgument,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    train: TrainOption = False,
    as_is: AsIsOption = False,
    amp: AmpOption = None,
    device: DeviceOption = "cpu",
    compile_: CompileOption = False,
    static: StaticOption = False,
    kernels: KernelsOption = [],  # noqa: B006 - typer copies it
    format_: FormatOption = None,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
    plan: PlanOption = None,
    fail_on: FailOption = [],  # noqa: B006 - typer copies it
    repeats: RepeatsOption = 5,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    debug: DebugOption = False,
) -> None:
    """See where a model loses the channels-last memory format, what that costs, and who causes it.

    Exit codes: 0 fine, 1 a --fail-on condition holds, 2 bad input, 3 a fault in nhwc, 130 interrupted, 141 the
    reader of the output left before its end.
    """
    with one_sentence(debug):
        # What needs no torch comes first, so that a typing error is told at once.
        from nhwc import report as reports
        from nhwc import rules
        from nhwc.schema import load_plan

        conditions = [parse_condition(text, sorted(rules.RULES)) for text in fail_on]
        refuse_unanswerable(conditions, static, repeats)
        names = kernel_names(kernels)
        if names and (static or compile_):
            raise TargetError(
                f"--kernels would do nothing with {'--static' if static else '--compile'}: they step aside for "
                f"{'fake tensors' if static else 'compiled code'}; leave one out"
            )
        dtype = preparation.amp_dtype(amp)
        asked = preparation.request(
            target,
            input_=input_,
            images=images,
            batch=batch,
            train=train,
            device=device,
            threads=threads,
            seed=seed,
            static=static,
        )
        files = output.plan_files(output_, format_, reports.formats())
        if plan is not None and "html" not in {format_, *(file.format for file in files)}:
            raise TargetError("--plan shows the plan on the HTML page alone; add -o page.html")
        shown = None if plan is None else load_plan(plan)

        import torch

        from nhwc import api

        with output.progress_line(f"building {target}") as progress:
            chosen = preparation.prepare(asked)
            if shown is not None:
                api.check_plan(
                    shown,
                    chosen.model,
                    *(chosen.inputs or ()),
                    kwargs=chosen.keywords,
                    train=train,
                    amp=None if dtype is None else getattr(torch, dtype),
                )
            with api.kernels_on(names, torch.device(device)):
                report = api.audit(
                    chosen.model,
                    *(chosen.inputs or ()),
                    kwargs=chosen.keywords,
                    train=train,
                    convert=False if as_is else "auto",
                    amp=None if dtype is None else getattr(torch, dtype),
                    compile=compile_,
                    static=static,
                    repeats=repeats,
                    target=chosen.name,
                    progress=progress,
                )
        output.emit(
            lambda name: api.render(report, name, **({"plan": shown} if shown and name == "html" else {})),
            partial(api.print_report, report),
            files,
            format_,
        )
        _judge(report, conditions)


def _judge(report: "AuditReport", conditions: Sequence[Condition]) -> None:
    reasons = [(condition.text, reason) for condition in conditions if (reason := condition.held_by(report))]
    for text, reason in reasons:
        say(f"--fail-on {text}: {reason}")
    if reasons:
        raise typer.Exit(ExitCode.CONDITION_HOLDS)
