"""The page of each rule: its sections are there, its title is the rule's, and its example runs."""

import re

import pytest
from meta.project import ROOT

from nhwc.rules import RULES

SECTIONS = ["What it finds", "Why it costs", "Example", "What to do", "When it is a false alarm"]
pytestmark = pytest.mark.usefixtures("few_threads")


def page(code: str) -> str:
    return (ROOT / "docs" / "rules" / f"{code.lower()}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", sorted(RULES))
def test_page_has_the_title_and_the_kind_of_its_rule(code: str) -> None:
    assert page(code).startswith(f"# {code}: {RULES[code].title}\n\nKind: {RULES[code].kind}. Severity: ")


@pytest.mark.parametrize("code", sorted(RULES))
def test_page_says_what_why_how_and_when_not(code: str) -> None:
    assert re.findall(r"^## (.*)$", page(code), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("code", sorted(set(RULES) - {"NH103"}))  # no operator of torch makes oneDNN do it at will
def test_example_runs_and_shows_the_rule(code: str) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", page(code), re.MULTILINE | re.DOTALL)
    assert f'"{code}"' in example
    exec(compile(example, f"{code.lower()}.md", "exec"), {"__name__": "__example__"})
