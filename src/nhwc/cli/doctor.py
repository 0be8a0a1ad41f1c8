"""``nhwc doctor``: what decides the speed of memory formats on this machine, and what to do about it."""

from typing import Annotated

import typer

from nhwc.cli import output
from nhwc.cli.exits import one_sentence
from nhwc.cli.options import DebugOption

JsonOption = Annotated[bool, typer.Option("--json", help="Print versioned JSON instead of text.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Leave out the ten-second measurement of the allocator.")]
PlaceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda|cuda:1", help="The GPU to look at too; by default the first, if any."),
]


def doctor(
    json_: JsonOption = False,
    quick: QuickOption = False,
    device: PlaceOption = None,
    debug: DebugOption = False,
) -> None:
    """See what decides the speed of memory formats on this machine, each fact with a line on what to do.

    Exit codes: 0 examined, whatever was found, 2 bad input, 3 a fault in nhwc, 130 interrupted, 141 the reader of the
    output left before its end.
    """
    with one_sentence(debug):
        from nhwc import api
        from nhwc.report.health import print_health

        with output.progress_line("looking around") as progress:
            health = api.doctor(device, quick=quick, progress=progress)
        output.emit(
            lambda format_: health.render(format_, indent=2 if format_ == "json" else None),
            lambda console: print_health(health, console),
            [],
            "json" if json_ else None,
        )
