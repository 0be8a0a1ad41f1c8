"""The ``nhwc`` command: its subcommands and its version."""

from typing import Annotated

import typer

from nhwc import __version__
from nhwc.cli.audit import audit

app = typer.Typer(
    help="The channels-last memory format of PyTorch: see where a model loses it, and what that costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(audit)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nhwc {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="nhwc")
