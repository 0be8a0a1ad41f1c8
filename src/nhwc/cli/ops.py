"""``nhwc ops``: which operators of the installed torch keep channels last, and what changed between two builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nhwc.cli import output
from nhwc.cli.exits import one_sentence
from nhwc.cli.ops_diff import compare
from nhwc.cli.options import DebugOption, DeviceOption, OutputOption, ThreadsOption
from nhwc.errors import TargetError

if TYPE_CHECKING:
    from nhwc.api.surveying import OpsReport

SavedArgument = Annotated[
    Path | None, typer.Argument(metavar="[SAVED.json]", help="A saved table to show, instead of surveying.")
]
FilterOption = Annotated[
    str, typer.Option("--filter", metavar="TEXT", help="Only operators with this text in their name or kind.")
]
OnlyOption = Annotated[str, typer.Option("--only", metavar="problems", help="Only what costs or is wrong.")]
SortOption = Annotated[str, typer.Option("--sort", metavar="name|worst|forward|backward|speed", help="Order of rows.")]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", metavar="fp32,bf16,...", help="fp32, bf16, fp64, fp16; fp32,bf16,fp64 if left out."),
]
CompiledOption = Annotated[
    str,
    typer.Option("--compiled", metavar="own|all", help="Also through torch.compile, which is slow, see docs/ops.md."),
]
SpeedOption = Annotated[
    str,
    typer.Option("--speed", metavar="own|all", help="Also measure channels last against contiguous, see docs/ops.md."),
]
KernelsOption = Annotated[
    bool, typer.Option("--kernels", help="Also with nhwc's kernels switched on, for operators that have one.")
]
ResumeOption = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FILE", help="Keep what is found there as it is found; the same command goes on."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print versioned JSON instead of text.")]
DiffOption = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--diff", metavar="OLD.json NEW.json", help="Say what changed between two saved tables instead."),
]
FailOption = Annotated[
    bool, typer.Option("--fail-worse", help="With --diff: exit with 1 where something got worse, or is gone.")
]

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp64": "float64", "fp16": "float16"}
#: Each way to call the command, and what it takes besides --json, -o and --debug.
_SHOWING = {"filter_", "only", "sort"}
_TAKES = {
    "a survey": _SHOWING | {"dtype", "compiled", "speed", "kernels", "resume", "device", "threads"},
    "SAVED.json": _SHOWING | {"saved"},
    "--diff": {"diff", "fail_worse"},
}


@dataclass(frozen=True)
class _Asked:
    """What to survey."""

    filter: str
    dtypes: tuple[str, ...]
    device: str
    compiled: str
    speed: str
    kernels: bool
    resume: Path | None
    threads: int | None


def ops(
    context: typer.Context,
    saved: SavedArgument = None,
    filter_: FilterOption = "",
    only: OnlyOption = "",
    sort: SortOption = "name",
    dtype: DtypeOption = None,
    compiled: CompiledOption = "none",
    speed: SpeedOption = "none",
    kernels: KernelsOption = False,
    resume: ResumeOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    json_: JsonOption = False,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
    diff: DiffOption = None,
    fail_worse: FailOption = False,
    debug: DebugOption = False,
) -> None:
    """See which operators of the installed torch keep channels last, forward and backward.

    Exit codes: 0 fine, 1 --fail-worse holds, 2 bad input, 3 a fault in nhwc, 130 interrupted, 141 the reader of the
    output left before its end.
    """
    with one_sentence(debug):
        _refuse_mixed(context)
        given = "json" if json_ else None
        if json_ and output_:
            raise TargetError("--json is for stdout; leave it out, the ending of -o names its format")
        if diff is not None:
            compare(*diff, output_, given, fail_worse=fail_worse)
            return
        asked = _Asked(filter_, _dtypes(dtype), device, compiled, speed, kernels, resume, threads)
        _show(asked, saved, only, sort, output_, given)


def _show(asked: _Asked, saved: Path | None, only: str, sort: str, paths: list[Path], given: str | None) -> None:
    from nhwc.report import ops as reports
    from nhwc.report.ops.to_terminal import print_survey
    from nhwc.report.registry import formats

    files = output.plan_files(paths, given, formats("ops"))
    reports.check(only, sort)

    from nhwc.api import surveying

    report = surveying.load(saved) if saved is not None else _surveyed(asked)
    if saved is not None and report.rows and not any(reports.matches(row, asked.filter) for row in report.rows):
        raise TargetError(f"no operator of {saved} has {asked.filter!r} in its name; leave the filter out to see all")
    shown = surveying.of(reports.chosen(report, asked.filter if saved is not None else "", only, sort))
    output.emit(shown.render, lambda console: print_survey(shown, console), files, given)


def _surveyed(asked: _Asked) -> OpsReport:
    import torch

    from nhwc.api import surveying

    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    with output.progress_line("listing operators") as progress:
        return surveying.survey(
            asked.filter,
            dtypes=asked.dtypes,
            device=asked.device,
            compiled=asked.compiled,
            speed=asked.speed,
            kernels=asked.kernels,
            resume=asked.resume,
            progress=progress,
        )


def _dtypes(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ("float32", "bfloat16", "float64")
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in _DTYPES and word not in _DTYPES.values()]
    if unknown or not words:
        raise TargetError(f"--dtype {text!r}: name some of {', '.join(_DTYPES)}, joined by commas")
    return tuple(dict.fromkeys(_DTYPES.get(word, word) for word in words))


def _refuse_mixed(context: typer.Context) -> None:
    """Raise TargetError for options that do not go together: one that does nothing would mislead."""
    given = {parameter.name for parameter in context.command.params if _is_given(context, str(parameter.name))}
    way = "--diff" if "diff" in given else "SAVED.json" if "saved" in given else "a survey"
    every = set().union(*_TAKES.values())
    for parameter in context.command.params:
        if parameter.name in (given & every) - _TAKES[way]:
            needs = next(each for each, takes in _TAKES.items() if parameter.name in takes)
            raise TargetError(f"{parameter.opts[0]} does not go with {way}, but with {needs}; leave it out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
