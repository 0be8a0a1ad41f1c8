"""``nhwc bench --suite NAME``: measure many models, each in a process of its own, into a folder that resumes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nhwc.cli import output, preparation
from nhwc.cli.exits import ExitCode, say
from nhwc.cli.measuring import USUAL, Measuring, chosen_variants
from nhwc.errors import TargetError
from nhwc.timing import Verdict

if TYPE_CHECKING:
    from nhwc.suite import Suite, SuiteResult
    from nhwc.suites import Folder, Job

_USUAL_ON_GPU = ("contiguous+fp16", "channels_last+fp16")  # mixed precision, as the tutorial trains
_PAGE, _SUMMARY, _PICTURE = "index.html", "summary.json", "ratios.svg"


@dataclass(frozen=True)
class Place:
    """Which suite, which part of it, and where its results are. render: make the page only."""

    suite: str
    models: str | None
    modes: str | None
    folder: Path | None
    render: bool


def run_suite(
    place: Place,
    asked: Measuring,
    batch: int | None,
    device: str,
    threads: int | None,
    paths: Sequence[Path],
    format_: str | None,
    fail_slower: bool,
) -> None:
    """Measure what the folder lacks, then write the page, the picture and the summary of what is there."""
    from nhwc import suites
    from nhwc.report import registry

    suite = suites.suite_named(place.suite)
    wanted = suites.jobs(suite, _words("--models", place.models), _words("--modes", place.modes))
    files = output.plan_files(paths, format_, registry.formats("suite"))
    folder = suites.Folder(place.folder or Path(f"nhwc-{suite.name}"))
    if not place.render:
        try:
            _measure(suite, wanted, folder, asked, batch, device, threads)
        except KeyboardInterrupt:
            say(f"what is finished is in {folder.path}; the same command resumes there")
            raise
    result = folder.result(suite, wanted)
    for damage in filter(None, map(folder.damage, suites.jobs(suite))):
        say(damage)
    _write(folder, result, files, format_)
    _judge(result, fail_slower)


def _words(option: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise TargetError(f"{option} {text!r} has an empty name; join names by commas")
    return words


def _measure(
    suite: Suite,
    wanted: Sequence[Job],
    folder: Folder,
    asked: Measuring,
    batch: int | None,
    device: str,
    threads: int | None,
) -> None:
    from nhwc import api, suites
    from nhwc.report.suite.summary import row_text

    place = preparation.prepare_device(device, threads, asked.seed)
    specs = chosen_variants(asked, _USUAL_ON_GPU if place.type == "cuda" else USUAL, place)
    baseline = asked.baseline or ("contiguous" if "contiguous" in specs else specs[0])
    conditions = api.conditions(place)
    options = {
        "batch": "usual" if batch is None else str(batch),
        "variants": ",".join(specs),
        "baseline": baseline,
        "precision": f"{asked.precision:g}",
        "margin": f"{asked.margin:g}",
        "budget": f"{asked.budget_s:g}",
        "seed": str(asked.seed),
    }
    folder.open(suite, options, conditions)

    def command(job: Job) -> list[str]:
        given = {**options, "device": device, **({} if threads is None else {"threads": str(threads)})}
        words = [word for name, value in given.items() if value != "usual" for word in (f"--{name}", value)]
        train = ["--train"] if job.mode == "training" else []
        start = [sys.executable, "-m", "nhwc.cli.child", "bench", job.model.target]
        return [*start, *train, *words, "--format", "json"]

    with output.progress_line(f"the suite {suite.name}") as progress:

        def tell(job: Job, behind: int, count: int) -> None:
            progress(job.name, behind, count)

        def done(job: Job) -> None:
            row = folder.row(job, conditions.device)
            if row is None:
                return
            text = row_text(row)
            told = text.failure or f"{text.ratio} ({text.interval}), {text.verdict}; the tutorial: {text.claim}"
            say(f"{job.name}: {told}")

        suites.run(wanted, folder, command, tell, done)


def _write(folder: Folder, result: SuiteResult, files: Sequence[output.File], given: str | None) -> None:
    from nhwc.report import registry
    from nhwc.report.suite.to_terminal import print_suite

    def render(format_: str) -> str:
        return registry.renderer(format_, "suite")(result)

    for name, format_ in ((_PAGE, "html"), (_PICTURE, "svg"), (_SUMMARY, "json")):
        folder.write(name, render(format_))
    output.emit(render, lambda console: print_suite(result, console), files, given)
    say(f"wrote {_PAGE}, {_PICTURE} and {_SUMMARY} in {folder.path}")


def _judge(result: SuiteResult, fail_slower: bool) -> None:
    from nhwc.report.bench import untold_in_channels_last
    from nhwc.report.suite.summary import failed_rows, variant_failures

    for sentence in variant_failures(result):
        say(sentence)
    if fail_slower:
        for row in result.rows:
            for sentence in untold_in_channels_last(row.benchmark) if row.benchmark is not None else ():
                say(f"--fail-slower: {row.model} in {row.mode}: {sentence}")
    reasons = [f"{len(failed)} of {len(result.rows)} failed" for failed in [failed_rows(result)] if failed]
    slower = [f"{row.model} in {row.mode}" for row in result.rows if row.verdict is Verdict.SLOWER]
    if fail_slower and slower:
        reasons.append(f"--fail-slower: channels last is slower for {', '.join(slower)}")
    for reason in reasons:
        say(reason)
    if reasons:
        raise typer.Exit(ExitCode.CONDITION_HOLDS)
