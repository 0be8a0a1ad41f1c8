"""The documents: their commands, links and examples hold, and no file speaks of where it was written."""

import inspect
import re
from pathlib import Path

import pytest
from meta.project import ROOT, tracked
from typer.testing import CliRunner

import nhwc
from nhwc.cli.main import app

DOCUMENTS = [path for path in tracked() if path.suffix == ".md"]
TEXTS = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".yml",
    ".json",
    ".jsonl",
    ".html",
    ".css",
    ".js",
    ".svg",
    ".csv",
    ".sh",
    ".jinja",
}

#: Folders of one machine, and work left for later. Bracketed, so that this line does not hold what it forbids.
FOREIGN = re.compile(r"[/]work/|[/]root/|\bcase[_]\d\d|TO[D]O\b|FIX[M]E\b")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_make_target_in_a_document_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_command_and_option_in_a_document_exists(path: Path) -> None:
    for block in blocks(path, "(?:console|sh|bash|yaml)"):
        for name, arguments in re.findall(r"\bnhwc ([a-z]+)\b(.*)", block):
            answer = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
            assert answer.exit_code == 0, f"no command {name}"
            for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", arguments):
                assert re.search(rf"(?<!\S){option}\b", answer.stdout), f"nhwc {name}{arguments}: no option {option}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (path.parent / link).exists(), f"{link} is missing"


def links_of(path: Path) -> set[Path]:
    """Pages that a page links to; a link to a folder leads to every page in it."""
    found = [path.parent / link for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))]
    pages = {page for place in found for page in ([place] if place.suffix == ".md" else place.glob("*.md"))}
    return {page.resolve() for page in pages if page.is_file()}


@pytest.mark.parametrize("start", [ROOT / "docs" / "index.md", ROOT / "README.md"], ids=name_of)
def test_every_page_can_be_reached(start: Path) -> None:
    pages = {path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") or path.parent.name == "benchmarks"}
    reached, next_ = {start}, [start]
    while next_:
        new = (links_of(next_.pop()) & pages) - reached
        reached |= new
        next_ += new
    assert {name_of(path) for path in pages - reached} == set()


@pytest.mark.parametrize("name", ["audit", "bench", "engine", "optimize", "record", "verify"])
def test_the_docs_give_the_whole_signature(name: str) -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"```python\nnhwc\.{name}\((.*?)^\) -> (?:\w+)\n```", text, re.MULTILINE | re.DOTALL)
    parameters = [str(each.replace(annotation=inspect.Parameter.empty)) for each in signature_of(name)]
    assert " ".join(shown.split()).rstrip(",") == ", ".join(parameters).replace("'", '"')
    described = text.split(f"### `nhwc.{name}(", 1)[1].split("\n### ", 1)[0]
    table = " ".join(re.findall(r"^\| (`.*?`) \|", described, re.MULTILINE))
    assert all(f"`{parameter.split('=')[0]}`" in table for parameter in parameters)


def signature_of(name: str) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(nhwc, name)).parameters.values())


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "engine.md"], ids=name_of
)
def test_the_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__example__"}  # later examples build on earlier ones
    for block in blocks(path, "python"):
        exec(compile(block, name_of(path), "exec"), names)


@pytest.mark.parametrize("path", [path for path in tracked() if path.suffix in TEXTS or not path.suffix], ids=name_of)
def test_no_file_speaks_of_where_it_was_written(path: Path) -> None:
    found = FOREIGN.search(path.read_text(encoding="utf-8"))
    assert found is None, f"{found[0]!r} in line {found.string[: found.start()].count(chr(10)) + 1}"
