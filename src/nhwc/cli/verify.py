"""``nhwc verify TARGET``: judge whether a model computes the same in channels last as in contiguous format."""

from pathlib import Path
from typing import Annotated

import typer

from nhwc.cli import output, preparation
from nhwc.cli.exits import ExitCode, one_sentence
from nhwc.cli.kernels import KernelsOption, kernel_names, with_kernels
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

TrainOption = Annotated[bool, typer.Option("--train", help="Verify a training step: gradients and buffers too.")]
VariantsOption = Annotated[
    str, typer.Option("--variants", metavar="A,B", help="channels_last, channels_last+bf16, ...; joined by commas.")
]
FactorOption = Annotated[
    float, typer.Option("--factor", help="How many times the contiguous error a variant's error may be.")
]
ReproducerOption = Annotated[
    Path, typer.Option("--reproducer", metavar="DIR", help="Where to write a file that shows a fault alone.")
]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json", help="Of the report.")]


def verify(
    target: TargetArgument,
    input_: InputOption = [],  # noqa: B006 - typer copies it
    images: ImagesOption = None,
    batch: BatchOption = None,
    train: TrainOption = False,
    variants: VariantsOption = "channels_last",
    factor: FactorOption = 8.0,
    kernels: KernelsOption = [],  # noqa: B006 - typer copies it
    reproducer: ReproducerOption = Path(),
    device: DeviceOption = "cpu",
    format_: FormatOption = None,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    debug: DebugOption = False,
) -> None:
    """Judge whether a model computes the same in channels last, each result against float64.

    Exit codes: 0 every variant passed, 1 one diverged, raised or could not be compared, 2 bad input, 3 a fault in nhwc,
    130 interrupted, 141 the reader of the output left before its end.
    """
    with one_sentence(debug):
        # What needs no torch comes first, so that a typing error is told at once.
        from nhwc.report import registry
        from nhwc.report.verification import to_terminal

        specs = [spec.strip() for spec in variants.split(",") if spec.strip()]
        if not specs:
            raise TargetError("--variants names no variant; give channels_last, or several joined by commas")
        specs = with_kernels(specs, kernel_names(kernels))
        if not factor > 0:
            raise TargetError(f"--factor {factor:g} is not above 0; it says how many times the error is allowed")
        if reproducer.exists() and not reproducer.is_dir():
            raise TargetError(f"--reproducer {reproducer} is a file; name a folder")
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
        files = output.plan_files(output_, format_, registry.formats("verification"))

        from nhwc import api

        with output.progress_line(f"building {target}") as progress:
            chosen = preparation.prepare(asked)
            report = api.verify(
                chosen.model,
                *(chosen.inputs or ()),
                kwargs=chosen.keywords,
                train=train,
                variants=specs,
                factor=factor,
                seed=seed,
                reproducer=reproducer,
                target=chosen.name,
                progress=progress,
            )
        output.emit(
            report.render,
            lambda console: to_terminal.print_verification(report, console),
            files,
            format_,
        )
        if not report.passed:
            raise typer.Exit(ExitCode.CONDITION_HOLDS)
