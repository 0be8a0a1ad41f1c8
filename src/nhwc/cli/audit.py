"""``nhwc audit TARGET``: run one step of a model and say where it loses its memory format."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nhwc.cli import inputs, output, targets
from nhwc.cli.conditions import Condition, parse_condition, refuse_unanswerable
from nhwc.cli.exits import ExitCode, one_line, one_sentence, say
from nhwc.cli.inputs import InputShape
from nhwc.cli.pictures import find_pictures
from nhwc.cli.recipes import Kind
from nhwc.cli.static import make_fake, weightless
from nhwc.cli.targets import Target
from nhwc.errors import TargetError

if TYPE_CHECKING:
    import torch

    from nhwc.api import AuditReport

_AMP = {"bf16": "bfloat16", "fp16": "float16"}

TargetArgument = Annotated[
    str, typer.Argument(help="A torchvision or timm model, package.module:callable, or file.py:callable.")
]
InputOption = Annotated[
    list[str], typer.Option("--input", metavar="SHAPE", help="8x3x224x224, 2x5:int64; once per argument of the model.")
]
ImagesOption = Annotated[
    Path | None, typer.Option("--images", metavar="DIR", help="Feed real pictures, resized and normalised as usual.")
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", min=1, metavar="N", help="Samples per step, where --input does not say.")
]
TrainOption = Annotated[bool, typer.Option("--train", help="Audit a training step: forward, and backward from ones.")]
AmpOption = Annotated[str | None, typer.Option("--amp", metavar="bf16|fp16", help="Run under autocast.")]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
AsIsOption = Annotated[
    bool, typer.Option("--as-is", help="Audit the model in the format it has, instead of in channels last.")
]
CompileOption = Annotated[bool, typer.Option("--compile", help="Audit what torch.compile makes of the model.")]
StaticOption = Annotated[bool, typer.Option("--static", help="Compute nothing: follow the layouts on fake tensors.")]
FormatOption = Annotated[str | None, typer.Option("--format", metavar="text|json|html", help="Of the report.")]
OutputOption = Annotated[
    list[Path], typer.Option("-o", "--output", metavar="FILE", help="Also write it here; its ending names the format.")
]
FailOption = Annotated[
    list[str], typer.Option("--fail-on", metavar="CONDITION", help="Exit with 1 on a rule, 1MB, 5% or any.")
]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=0, help="Timings per operator; 0 measures no time.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Threads that torch may use.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of weights and random inputs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]


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
    format_: FormatOption = None,
    output_: OutputOption = [],  # noqa: B006 - typer copies it
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

        conditions = [parse_condition(text, sorted(rules.RULES)) for text in fail_on]
        refuse_unanswerable(conditions, static, repeats)
        shapes = [inputs.parse_input(text) for text in input_]
        if shapes and batch is not None:
            raise TargetError("--batch and --input both give the batch; leave one out")
        if amp is not None and amp not in _AMP:
            raise TargetError(f"--amp {amp!r} is unknown; use bf16 or fp16")
        targets.check(target)
        pictures = [] if images is None else find_pictures(images)
        files = output.plan_files(output_, format_, reports.formats())

        import torch

        from nhwc import api

        with output.progress_line(f"building {target}") as progress:
            place = _prepared(device, static, threads, seed)
            chosen = _loaded(target, static)
            if images is not None:
                chosen = _with_pictures(chosen, shapes, images, pictures, batch)
            else:
                chosen = _with_tensors(chosen, shapes, batch)
            inputs.refuse_empty(target, [*(chosen.inputs or ()), *chosen.keywords.values()])
            chosen = _placed(_with_training_targets(chosen, train), place, static)
            report = api.audit(
                chosen.model,
                *(chosen.inputs or ()),
                kwargs=chosen.keywords,
                train=train,
                convert=False if as_is else "auto",
                amp=None if amp is None else getattr(torch, _AMP[amp]),
                compile=compile_,
                static=static,
                repeats=repeats,
                target=chosen.name,
                progress=progress,
            )
        output.emit(report, files, output.TEXT if files else format_ or output.TEXT)
        _judge(report, conditions)


def _prepared(device: str, static: bool, threads: int | None, seed: int) -> "torch.device":
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        found = torch.device(device)
        if not static:  # fake tensors pretend to be on any device
            torch.empty(1, device=found)
    except NotImplementedError as error:
        raise TargetError(f"--device {device} cannot be used: this torch has no {device} backend") from error
    except Exception as error:  # each backend refuses in its own way
        raise TargetError(f"--device {device} cannot be used: {one_line(error)}") from error
    if found.type == "meta":
        raise TargetError("--device meta computes nothing; use --static with the device that the model is meant for")
    return found


def _loaded(target: str, static: bool) -> Target:
    if not static:
        return targets.load(target)
    with weightless():
        return targets.load(target)


def _with_tensors(target: Target, shapes: Sequence[InputShape], batch: int | None) -> Target:
    if shapes:
        return replace(target, inputs=tuple(inputs.random_input(shape) for shape in shapes), keywords={})
    if target.inputs is None and target.recipe is not None:
        return replace(target, inputs=inputs.default_inputs(target.recipe, batch))
    if target.inputs is None:
        raise TargetError(f"{target.name} came without inputs; give --input 8x3x224x224 or return (module, inputs)")
    if batch is not None:
        raise TargetError(f"{target.name} brings its own inputs; leave out --batch, or give --input")
    return target


def _with_pictures(
    target: Target, shapes: Sequence[InputShape], images: Path, pictures: Sequence[Path], batch: int | None
) -> Target:
    recipe, given = inputs.recipe_for(target.recipe, shapes)
    made, count = inputs.from_pictures(pictures, recipe, given or batch)
    wanted = given or batch or recipe.kind.batch
    said = f"{count} picture{'s' if count != 1 else ''}"
    if target.inputs is not None:
        say(f"{target.name} brings its own inputs: the pictures take their place")
    if count < wanted:
        say(f"{said} for a batch of {wanted}: they come round again")
    return replace(target, name=f"{target.name} on {said} of {images}", inputs=made, keywords={})


def _with_training_targets(target: Target, train: bool) -> Target:
    """Detection models take a list of images and, to train, what there is to find in them."""
    if target.recipe is None or target.recipe.kind is not Kind.DETECTION or not target.inputs:
        return target
    images = list(target.inputs[0])  # type: ignore[call-overload]
    return replace(target, inputs=(images, inputs.boxes_for(images, target.model)) if train else (images,))


def _placed(target: Target, place: "torch.device", static: bool) -> Target:
    if static:
        from nhwc import api

        with api.fake_mode():
            make_fake(target.model, place)
            return _with_arguments_on(target, place, static)
    try:
        target.model.to(place)
    except Exception as error:  # out of memory, or a module that refuses
        raise TargetError(f"{target.name} cannot be moved to {place}: {one_line(error)}") from error
    return _with_arguments_on(target, place, static)


def _with_arguments_on(target: Target, place: "torch.device", static: bool) -> Target:
    keywords = inputs.placed(dict(target.keywords), place, static)
    return replace(target, inputs=inputs.placed(target.inputs, place, static), keywords=keywords)


def _judge(report: "AuditReport", conditions: Sequence[Condition]) -> None:
    reasons = [(condition.text, reason) for condition in conditions if (reason := condition.held_by(report))]
    for text, reason in reasons:
        say(f"--fail-on {text}: {reason}")
    if reasons:
        raise typer.Exit(ExitCode.CONDITION_HOLDS)
