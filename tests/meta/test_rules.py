"""Every rule is registered, documented, and in the changelog."""

import re

import pytest
from meta.project import PACKAGE, ROOT

from nhwc.rules import RULES

FILES = sorted((PACKAGE / "rules").glob("nh[0-9]*.py"))
PAGES = ROOT / "docs" / "rules"


def test_every_rule_file_registers_the_code_in_its_name() -> None:
    assert sorted(RULES) == [path.stem.split("_")[0].upper() for path in FILES]
    assert all(RULES[path.stem.split("_")[0].upper()].find.__module__ == f"nhwc.rules.{path.stem}" for path in FILES)


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_rule_has_a_page_that_opens_with_its_code(code: str) -> None:
    page = PAGES / f"{code.lower()}.md"
    assert page.is_file()
    assert re.match(rf"# {code}\b", page.read_text(encoding="utf-8"))


def test_no_page_describes_a_rule_that_is_gone() -> None:
    assert {path.stem.upper() for path in PAGES.glob("nh*.md")} <= set(RULES)


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_changelog_mentions_the_rule(code: str) -> None:
    assert code in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
