"""The examples on the page about data hold."""

from __future__ import annotations

import re

import pytest
from meta.project import ROOT


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_the_examples_run() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    exec(compile(code, "docs/data.md", "exec"), {"__name__": "__example__"})
