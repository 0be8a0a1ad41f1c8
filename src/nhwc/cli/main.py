"""The ``nhwc`` command: its subcommands and its version."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nhwc import __version__
from nhwc.cli.audit import audit
from nhwc.cli.bench import bench
from nhwc.cli.doctor import doctor
from nhwc.cli.engine import engine
from nhwc.cli.exits import ExitCode, say
from nhwc.cli.kernels import KernelsCommand
from nhwc.cli.ops import ops
from nhwc.cli.optimize import optimize
from nhwc.cli.train import train
from nhwc.cli.verify import verify

# The root of what typer raises on a command line that makes no sense: its own, or click's before typer carried one.
_UsageError: Any = typer.BadParameter.__base__


class _OneSentence(TyperGroup):
    """Commands whose misuse is told in one sentence, as every other error is."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            code = super().main(*arguments, **{**options, "standalone_mode": False})
        except _UsageError as error:
            text = error.format_message().strip().rstrip(".")
            context = getattr(error, "ctx", None)
            command = f"nhwc {context.info_name}" if context is not None and context.parent is not None else "nhwc"
            say(f"{text[:1].lower()}{text[1:]}; see {command} --help")
            code = ExitCode.BAD_INPUT
        sys.exit(code or ExitCode.FINE)


app = typer.Typer(
    cls=_OneSentence,
    help="The channels-last memory format of PyTorch: see where a model loses it, and what that costs.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(cls=KernelsCommand)(audit)
app.command()(bench)
app.command()(doctor)
app.command()(engine)
app.command()(ops)
app.command()(optimize)
app.command()(train)
app.command(cls=KernelsCommand)(verify)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nhwc {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.BAD_INPUT)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="nhwc")
