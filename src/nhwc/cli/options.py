"""Options that several commands take, each worded once."""

from pathlib import Path
from typing import Annotated

import typer

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
AmpOption = Annotated[str | None, typer.Option("--amp", metavar="bf16|fp16", help="Run under autocast.")]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
OutputOption = Annotated[
    list[Path], typer.Option("-o", "--output", metavar="FILE", help="Also write it here; its ending names the format.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Threads that torch may use.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of weights and random inputs.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
