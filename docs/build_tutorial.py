"""``make tutorial``: the notebook, with the outputs of a run, and the script of docs/tutorial.md."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient

PAGE = Path(__file__).with_name("tutorial.md")
NOTEBOOK = PAGE.with_suffix(".ipynb")
SCRIPT = PAGE.with_suffix(".py")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_SECONDS_PER_CELL = 300


def notebook() -> nbformat.NotebookNode:
    """The page as a notebook without outputs: a cell for each block of Python and each stretch of text between."""
    made = jupytext.read(PAGE)
    made.metadata = nbformat.NotebookNode(kernelspec=nbformat.NotebookNode(_KERNEL))
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"  # jupytext draws them, and every build would be another file
    return made


def script() -> str:
    """The page as a script: its text as comments."""
    return jupytext.writes(jupytext.read(PAGE), fmt="py:light")


def run(made: nbformat.NotebookNode) -> None:
    """Run every cell in order, in an empty folder. Raises CellExecutionError with the cell that raised."""
    with TemporaryDirectory() as folder:
        NotebookClient(made, timeout=_SECONDS_PER_CELL, resources={"metadata": {"path": folder}}).execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when each cell ran is nobody's business


if __name__ == "__main__":
    SCRIPT.write_text(script(), encoding="utf-8")
    built = notebook()
    run(built)
    nbformat.write(built, NOTEBOOK)
    sys.stdout.write(f"{NOTEBOOK.name} and {SCRIPT.name} are written\n")
