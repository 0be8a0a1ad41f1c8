"""Every kernel has its place in the docs."""

import re

import pytest
from meta.project import ROOT

import nhwc

PAGES = ROOT / "docs" / "kernels"


@pytest.mark.parametrize("name", [each.name for each in nhwc.kernels.kernels()])
def test_a_kernel_is_on_a_page_of_its_family(name: str) -> None:
    pages = [path for path in sorted(PAGES.glob("*.md")) if path.name != "index.md"]
    assert any(f"`{name}`" in path.read_text(encoding="utf-8") for path in pages)


def test_the_table_lists_exactly_the_kernels() -> None:
    lines = (PAGES / "index.md").read_text(encoding="utf-8").splitlines()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines if line.startswith("| `")]
    assert rows == [(f"`{each.name}`", each.about) for each in nhwc.kernels.kernels()]


def test_the_page_says_what_a_name_switches_on_besides_itself() -> None:
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    said = text.partition("- A name switches on")[2].partition("\n- ")[0]
    told = {name for each in nhwc.kernels.kernels() if each.uses for name in (each.name, *each.uses)}
    assert told == set(re.findall(r"`(\w+)`", said)) - {"uses"}
