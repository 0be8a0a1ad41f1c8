"""``nhwc train DATA``: train a classifier of images in channels last, on one device or many."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from nhwc.cli import targets
from nhwc.cli.exits import one_sentence
from nhwc.cli.options import DebugOption, DeviceOption, ThreadsOption
from nhwc.cli.train_display import showing
from nhwc.errors import TargetError

_FORMATS = ("text", "json")


def _option(name: str, help_: str, metavar: str | None = None) -> Any:
    return typer.Option(name, help=help_, metavar=metavar)


DataArgument = Annotated[
    str, typer.Argument(help="A folder of class folders, or with train/ and val/; a .npz; synthetic.")
]
ArchOption = Annotated[
    str, _option("--arch", "A torchvision or timm model, package.module:callable, or file.py:callable.")
]
FolderOption = Annotated[Path | None, _option("--folder", "Where checkpoints and the log go.", "DIR")]
EpochsOption = Annotated[int, _option("--epochs", "How often to go through the data.")]
StepsOption = Annotated[int | None, _option("--steps", "End after so many optimizer steps.")]
BatchOption = Annotated[int, _option("--batch", "Images per process and batch.")]
AccumulateOption = Annotated[int, _option("--accumulate", "Batches per optimizer step.")]
WorkersOption = Annotated[int, _option("--workers", "Processes that read data; 0 reads in this one.")]
SizeOption = Annotated[int | None, _option("--size", "Side of the square that images are cropped to.", "PIXELS")]
SamplesOption = Annotated[int, _option("--samples", "Of synthetic data, how many.")]
ClassesOption = Annotated[int, _option("--classes", "Of synthetic data, how many.")]
ValOption = Annotated[str | None, _option("--val", "What to evaluate on, where DATA has none.", "DIR|NPZ")]
AugmentOption = Annotated[bool, _option("--augment/--no-augment", "Random crops and flips.")]
MeanOption = Annotated[str | None, _option("--mean", "Per channel, of images in 0 to 1.", "R,G,B")]
StdOption = Annotated[str | None, _option("--std", "Standard deviation per channel.", "R,G,B")]
ChannelsLastOption = Annotated[
    str, _option("--channels-last", "The memory format of weights and batches.", "auto|true|false")
]
MeasureOption = Annotated[
    float, _option("--measure", "Of --channels-last auto: how long it may compare; 0 does not.", "SECONDS")
]
KernelsOption = Annotated[
    bool | None, _option("--kernels/--no-kernels", "nhwc's kernels; by default on in channels last.")
]
CompileOption = Annotated[bool, _option("--compile", "torch.compile the model.")]
AmpOption = Annotated[str | None, _option("--amp", "Mixed precision; fp16 scales the loss.", "bf16|fp16")]
OptimizerOption = Annotated[str, _option("--optimizer", "Which.", "sgd|adamw")]
LrOption = Annotated[float, _option("--lr", "Learning rate at the top of the schedule.")]
MomentumOption = Annotated[float, _option("--momentum", "Of SGD.")]
DecayOption = Annotated[float, _option("--weight-decay", "Of the optimizer.")]
ScheduleOption = Annotated[str, _option("--schedule", "How the learning rate falls.", "cosine|step|constant")]
WarmupOption = Annotated[float, _option("--warmup", "Epochs in which the learning rate rises.", "EPOCHS")]
EveryOption = Annotated[int, _option("--step-epochs", "Of --schedule step: epochs between steps.")]
FactorOption = Annotated[float, _option("--step-factor", "Of --schedule step: by which factor.")]
SmoothingOption = Annotated[float, _option("--label-smoothing", "0 to less than 1.")]
EmaOption = Annotated[float | None, _option("--ema", "Evaluate averaged weights, of this decay, such as 0.999.")]
SeedOption = Annotated[int, _option("--seed", "Of weights, order and augmentation.")]
SaveOption = Annotated[int | None, _option("--save-every", "Steps between checkpoints, besides each epoch's.", "STEPS")]
PrintOption = Annotated[int, _option("--print-every", "Steps between log lines.", "STEPS")]
ResumeOption = Annotated[bool, _option("--resume", "Go on from the last checkpoint in --folder, where there is one.")]
FromOption = Annotated[Path | None, _option("--from", "Go on from this checkpoint.", "FILE")]
EvaluateOption = Annotated[bool, _option("--evaluate", "Only evaluate what --resume or --from names.")]
BoardOption = Annotated[bool | None, _option("--tensorboard/--no-tensorboard", "By default where it is installed.")]
FsdpOption = Annotated[bool, _option("--fsdp", "Under torchrun: shard parameters instead of copying them.")]
SyncOption = Annotated[bool, _option("--sync-batch-norm", "Under torchrun: batch statistics over all processes.")]
FormatOption = Annotated[str, _option("--format", "Of the lines on stdout.", "text|json")]


def train(
    data: DataArgument,
    arch: ArchOption = "resnet18",
    folder: FolderOption = None,
    epochs: EpochsOption = 90,
    max_steps: StepsOption = None,
    batch: BatchOption = 32,
    accumulate: AccumulateOption = 1,
    workers: WorkersOption = 0,
    size: SizeOption = None,
    samples: SamplesOption = 1280,
    classes: ClassesOption = 1000,
    evaluate: ValOption = None,
    augment: AugmentOption = True,
    mean: MeanOption = None,
    std: StdOption = None,
    channels_last: ChannelsLastOption = "auto",
    measure_s: MeasureOption = 20.0,
    kernels: KernelsOption = None,
    compile_: CompileOption = False,
    amp: AmpOption = None,
    optimizer: OptimizerOption = "sgd",
    lr: LrOption = 0.1,
    momentum: MomentumOption = 0.9,
    weight_decay: DecayOption = 1e-4,
    schedule: ScheduleOption = "cosine",
    warmup_epochs: WarmupOption = 0.0,
    decay_every: EveryOption = 30,
    decay: FactorOption = 0.1,
    label_smoothing: SmoothingOption = 0.0,
    ema: EmaOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    save_every: SaveOption = None,
    print_every: PrintOption = 10,
    resume: ResumeOption = False,
    from_: FromOption = None,
    evaluate_only: EvaluateOption = False,
    tensorboard: BoardOption = None,
    fsdp: FsdpOption = False,
    sync_batch_norm: SyncOption = False,
    format_: FormatOption = "text",
    debug: DebugOption = False,
) -> None:
    """Train a classifier of images in channels last; on many processes or machines under torchrun.

    torchrun --nproc-per-node 4 -m nhwc train DATA ... starts four on one machine. Ctrl-C ends a run after the step it
    is in, with a checkpoint.

    Exit codes: 0 fine, 2 bad input, a full disk, or a loss that is no number, 3 a fault in nhwc, 130 interrupted, 141
    the reader of the output left before its end.
    """
    given = dict(locals())
    with one_sentence(debug):
        # What needs no torch comes first, so that a typing error is told at once.
        if format_ not in _FORMATS:
            raise TargetError(f"--format {format_!r} is unknown; the formats are {', '.join(_FORMATS)}")
        if resume and from_ is not None:
            raise TargetError("--resume and --from both say where to go on from; leave one out")
        if evaluate_only and not resume and from_ is None:
            raise TargetError("--evaluate needs a checkpoint: --folder DIR --resume names its last, or --from FILE one")
        statistics = {name: _numbers(f"--{name}", text) for name, text in (("mean", mean), ("std", std))}
        targets.check(arch)

        from nhwc import api

        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        with api.naming(option_names()):
            chosen = targets.classifier(arch)
            plain = {field.name: given[field.name] for field in fields(api.TrainSettings) if field.name in given}
            settings = api.TrainSettings(
                **{
                    **plain,
                    **statistics,
                    "compile": compile_,
                    "resume": from_ or resume,
                    "size": chosen.size if size is None and not data.endswith(".npz") else size,
                }
            )
            with showing(format_) as sinks:
                api.train(chosen.build, settings, sinks=sinks)


def option_names() -> dict[str, str]:
    """What the command calls each setting of TrainSettings."""
    hints = get_type_hints(train, include_extras=True)
    del hints["return"]
    words = {name: hint.__metadata__[0].default for name, hint in hints.items()}  # where typer keeps the first name
    named = {name.rstrip("_"): word.partition("/")[0] for name, word in words.items() if isinstance(word, str)}
    return {**named, "data": "DATA"}


def _numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise TargetError(
            f"{option} {text!r} is not numbers; write one per channel, as in 0.485,0.456,0.406"
        ) from error
