"""The tutorial: its notebook and its script say what the page says, and the notebook runs from top to bottom."""

import importlib.util
from types import ModuleType

import nbformat
import pytest
from meta.project import ROOT


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_tutorial", ROOT / "docs" / "build_tutorial.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_the_notebook_is_that_of_the_page(build: ModuleType) -> None:
    kept = nbformat.read(build.NOTEBOOK, as_version=4)
    assert cells(kept) == cells(build.notebook()), "run `make tutorial`"


def test_the_script_is_that_of_the_page(build: ModuleType) -> None:
    assert build.SCRIPT.read_text(encoding="utf-8") == build.script(), "run `make tutorial`"


def test_the_kept_notebook_holds_a_whole_run_without_errors(build: ModuleType) -> None:
    code = [cell for cell in nbformat.read(build.NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert [each.output_type for cell in code for each in cell.outputs if each.output_type == "error"] == []


def test_the_notebook_runs_from_top_to_bottom(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    made = build.notebook()
    build.run(made)
    assert all(cell.execution_count for cell in made.cells if cell.cell_type == "code")
