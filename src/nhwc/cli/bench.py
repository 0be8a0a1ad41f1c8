"""``nhwc bench``: measure what each memory format is worth here, compare two measurements, or run a suite."""

from pathlib import Path
from typing import Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.bench_compare import compare
from nhwc.cli.bench_suite import Place, run_suite
from nhwc.cli.exits import ExitCode, one_sentence, say
from nhwc.cli.measuring import USUAL, Measuring, chosen_variants, measuring
from nhwc.cli.options import (
    BatchOption,
    DebugOption,
    DeviceOption,
    ImagesOption,
    InputOption,
    OutputOption,
    SeedOption,
    ThreadsOption,
)
from nhwc.errors import TargetError

TargetArgument = Annotated[
    str | None, typer.Argument(help="A torchvision or timm model, package.module:callable, or file.py:callable.")
]
TrainOption = Annotated[bool, typer.Option("--train", help="Training steps: forward, backward, optimizer.")]
VariantsOption = Annotated[
    str | None, typer.Option("--variants", metavar="A,B|all", help="contiguous,channels_last,channels_last+bf16, ...")
]
BaselineOption = Annotated[
    str | None, typer.Option("--baseline", metavar="NAME", help="The variant that ratios are over.")
]
PrecisionOption = Annotated[str, typer.Option("--precision", metavar="7%", help="Stop when intervals are this narrow.")]
MarginOption = Annotated[str, typer.Option("--margin", metavar="5%", help="Every interval is widened by it.")]
BudgetOption = Annotated[
    float,
    typer.Option("--budget", metavar="SECONDS", help="Seconds of rounds at most; starting and warming up come on top."),
]
FailOption = Annotated[bool, typer.Option("--fail-slower", help="Exit with 1 where channels last is surely slower.")]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json|html", help="Of the report.")]
CompareOption = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A.json B.json", help="Compare two saved measurements instead."),
]
SuiteOption = Annotated[
    str | None, typer.Option("--suite", metavar="tutorial", help="Measure a suite of models instead.")
]
ModelsOption = Annotated[str | None, typer.Option("--models", metavar="A,B", help="Of the suite, only these.")]
ModesOption = Annotated[
    str | None, typer.Option("--modes", metavar="inference,training", help="Of the suite, only in these.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Where the suite keeps its results and resumes.")
]
RenderOption = Annotated[
    bool, typer.Option("--render", help="Measure nothing: make the suite's page of what is there.")
]

_ALWAYS = {"format_", "output_", "debug"}
_MEASURING = {
    *("batch", "variants", "baseline", "precision", "budget", "margin", "seed", "threads", "device", "fail_slower")
}
#: Each way to call the command, and what it takes.
_TAKES = {
    "TARGET": _ALWAYS | _MEASURING | {"target", "input_", "images", "train"},
    "--compare": _ALWAYS | {"compare_"},
    "--suite": _ALWAYS | _MEASURING | {"suite", "models", "modes", "folder", "render"},
}


def bench(
    context: typer.Context,
    target: TargetArgument = None,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    train: TrainOption = False,
    variants: VariantsOption = None,
    baseline: BaselineOption = None,
    precision: PrecisionOption = "7%",
    budget: BudgetOption = 60.0,
    margin: MarginOption = "5%",
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    device: DeviceOption = "cpu",
    format_: FormatOption = None,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
    fail_slower: FailOption = False,
    compare_: CompareOption = None,
    suite: SuiteOption = None,
    models: ModelsOption = None,
    modes: ModesOption = None,
    folder: FolderOption = None,
    render: RenderOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure how many times as fast a model runs in channels last, with a confidence interval.

    Exit codes: 0 fine, 1 --fail-slower holds, or a variant or a model of the suite did not run, 2 bad input,
    3 a fault in nhwc, 130 interrupted, 141 the reader of the output left before its end. Where the machine was
    unstable or too few rounds ran, --fail-slower says that nothing can be said, and exits with 0.
    """
    with one_sentence(debug):
        _refuse_mixed(context)
        if compare_ is not None:
            compare(*compare_, output_, format_)
            return
        asked = measuring(variants, baseline, precision, margin, budget, seed)
        if suite is not None:
            place = Place(suite, models, modes, folder, render)
            run_suite(place, asked, batch, device, threads, output_, format_, fail_slower)
            return
        if target is None:
            raise TargetError("name a TARGET to measure, such as resnet50, or use --suite or --compare")
        wanted = preparation.request(
            target,
            input_=input_,
            images=images,
            batch=batch,
            train=train,
            device=device,
            threads=threads,
            seed=seed,
        )
        _measure(wanted, asked, output_, format_, fail_slower)


def _measure(
    wanted: preparation.Request, asked: Measuring, paths: list[Path], format_: str | None, fail_slower: bool
) -> None:
    from nhwc.report import bench as reports
    from nhwc.report.bench.to_terminal import print_benchmark

    files = output.plan_files(paths, format_, reports.formats())

    from nhwc import api

    with output.progress_line(f"building {wanted.target}") as progress:
        device = preparation.prepare_device(wanted.device, wanted.threads, wanted.seed)
        specs = chosen_variants(asked, USUAL, device)
        chosen = preparation.prepare(wanted)
        report = api.bench(
            chosen.model,
            *(chosen.inputs or ()),
            kwargs=chosen.keywords,
            variants=specs,
            baseline=asked.baseline or None,
            mode="training" if wanted.train else "inference",
            precision=asked.precision,
            budget_s=asked.budget_s,
            margin=asked.margin,
            seed=asked.seed,
            target=chosen.name,
            progress=progress,
        )
    output.emit(
        report.render,
        lambda console: print_benchmark(report, console),
        files,
        format_,
    )
    missing = reports.did_not_run(report)
    slower = reports.slower_in_channels_last(report) if fail_slower else []
    untold = reports.untold_in_channels_last(report) if fail_slower else []
    for sentence in (*missing, *(f"--fail-slower: {each}" for each in (*slower, *untold))):
        say(sentence)
    if missing or slower:
        raise typer.Exit(ExitCode.CONDITION_HOLDS)


def _refuse_mixed(context: typer.Context) -> None:
    """Raise TargetError for options that do not go together: one that does nothing would mislead."""
    given = {name for name in context.params if _is_given(context, name)}
    ways = [("--compare", "compare_"), ("--suite", "suite"), ("TARGET", "target")]
    called = [way for way, name in ways if name in given]
    if len(called) > 1:
        raise TargetError(f"{' and '.join(called)} are different things to do; leave one out")
    way = called[0] if called else "TARGET"
    for parameter in context.command.params:
        if parameter.name in given - _TAKES[way]:
            needs = next(each for each, takes in _TAKES.items() if parameter.name in takes)
            raise TargetError(f"{parameter.opts[0]} does not go with {way}, but with {needs}; leave it out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
