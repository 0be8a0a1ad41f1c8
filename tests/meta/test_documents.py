"""The documents: their commands, links and examples hold, and no file speaks of where it was written."""

import re
from pathlib import Path

import pytest
from meta.project import ROOT, tracked
from typer.testing import CliRunner

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
def test_every_option_of_the_command_in_a_document_exists(path: Path) -> None:
    known = CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "200"}).stdout
    commands = [
        line
        for block in blocks(path, "(?:console|sh|bash|yaml)")
        for line in block.splitlines()
        if "nhwc audit" in line
    ]
    for command in commands:
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", command.split("nhwc audit", 1)[1]):
            assert re.search(rf"(?<!\S){option}\b", known), f"{command}: no option {option}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (path.parent / link).exists(), f"{link} is missing"


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "docs" / "index.md"], ids=name_of)
def test_the_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__example__"}  # later examples build on earlier ones
    for block in blocks(path, "python"):
        exec(compile(block, name_of(path), "exec"), names)


@pytest.mark.parametrize("path", [path for path in tracked() if path.suffix in TEXTS or not path.suffix], ids=name_of)
def test_no_file_speaks_of_where_it_was_written(path: Path) -> None:
    found = FOREIGN.search(path.read_text(encoding="utf-8"))
    assert found is None, f"{found[0]!r} in line {found.string[: found.start()].count(chr(10)) + 1}"
