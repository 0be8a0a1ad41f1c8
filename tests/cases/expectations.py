"""What a case says of itself: literals only, read from its text, so that adding a case needs no test code.

A case is a small model in a file of its own:

- its docstring opens with the public report it comes from, "owner/repository#number: ...";
- ``build()`` returns the model and its inputs, contiguous;
- a trailing comment stands on each line that a finding must name:
  ``# expect: NH101 operator=reshape bytes=1600``, several parted by ``;``. Keys are those of ``Expected``;
- ``EXPECT`` (a literal dictionary, optional) holds what has no line: see ``Case``;
- ``observe()`` (optional) returns facts of torch, and of nhwc about them, that must equal ``EXPECT["observe"]``.

Every finding that costs or can be wrong must be expected, or follow from one that is; everything else is a false alarm.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nhwc.model import Finding, Report, Severity

_SOURCE = re.compile(r"([\w.-]+/[\w.-]+#\d+): ")
_MARK = "expect:"


@dataclass(frozen=True)
class Expected:
    """One finding that a right tool reports; what is None is not compared.

    line: where in the case file. cause: the code of the finding that it must follow from, "none" for a culprit.
    """

    code: str
    line: int | None = None
    operator: str | None = None
    module: str | None = None
    phase: str | None = None
    kind: str | None = None
    severity: str | None = None
    bytes: int | None = None
    calls: int | None = None
    cause: str = "none"

    def matches(self, finding: Finding, report: Report, path: Path) -> bool:
        """Whether ``finding`` is the one."""
        source = finding.source
        if self.line is not None and (source is None or Path(source.file) != path or source.line != self.line):
            return False
        cause = next((other.code for other in report.findings if other.id == finding.cause), "none")
        have = {
            "code": finding.code,
            "operator": finding.operator,
            "module": finding.module,
            "phase": finding.phase.value,
            "kind": finding.kind,
            "severity": finding.severity.value,
            "bytes": finding.bytes,
            "calls": finding.calls,
            "cause": cause,
        }
        return all(getattr(self, key) in (None, value) for key, value in have.items())

    def __str__(self) -> str:
        said = [f"{each.name}={value!r}" for each in fields(self) if (value := getattr(self, each.name)) is not None]
        return f"{self.code} ({', '.join(said[1:])})"


@dataclass(frozen=True)
class Case:
    """A case file, read. Keys of ``EXPECT`` and their defaults:

    convert: what is converted before the audit: "both" (the audit does it), "model", "inputs" or "none".
    train: audit a training step.
    findings: expected findings without a line, as dictionaries.
    clean: operators and modules ("conv2d", "@enc", "conv2d@enc") that no finding but a note may name.
    outputs_equal: whether the converted model answers as the contiguous one: True, False, or None where it raises.
    output_format: the format that the converted model answers in.
    strides: parameter name → strides after ``nhwc.convert``.
    observe: what ``observe()`` returns.
    """

    path: Path
    report: str
    expected: tuple[Expected, ...]
    convert: str = "both"
    train: bool = False
    clean: tuple[str, ...] = ()
    outputs_equal: bool | None = True
    output_format: str | None = None
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    observe: dict[str, Any] | None = None


def read_case(path: Path) -> Case:
    """Parse a case file; ValueError where it does not follow the form."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    opening = _SOURCE.match(ast.get_docstring(tree) or "")
    if opening is None:
        raise ValueError(f"{path.name}: its docstring must open with owner/repository#number and a colon")
    expect = dict(_literal(tree))
    unlined = [Expected(**entry) for entry in expect.pop("findings", [])]
    expect = {key: tuple(value) if isinstance(value, list) else value for key, value in expect.items()}
    return Case(path, opening[1], (*expected_in(text), *unlined), **expect)


def _literal(tree: ast.Module) -> dict[str, Any]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "EXPECT" for t in node.targets):
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    return {}


def expected_in(text: str) -> Iterator[Expected]:
    """The expectations in a file's trailing comments."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comment = token.string.lstrip("# ")
        if token.type != tokenize.COMMENT or not comment.startswith(_MARK):
            continue
        for entry in comment.removeprefix(_MARK).split(";"):
            code, *pairs = entry.split()
            values = dict(pair.split("=", 1) for pair in pairs)
            yield Expected(code, token.start[0], **{key: _value(value) for key, value in values.items()})


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check(case: Case, report: Report) -> list[str]:
    """Every missed and every false alarm of ``report``, as sentences; none where it says what the case expects."""
    wrong: list[str] = []
    matched: set[str] = set()
    for expected in case.expected:
        hits = [f for f in report.findings if f.id not in matched and expected.matches(f, report, case.path)]
        if not hits:
            wrong.append(f"missed alarm: {expected}")
        matched |= {finding.id for finding in hits[:1]}
    for finding in report.findings:
        if finding.severity is Severity.NOTE or finding.id in matched:
            continue
        if finding.cause not in matched:
            wrong.append(f"false alarm: {describe(finding)}")
    for place in case.clean:
        operator, _, module = place.partition("@")
        for finding in report.findings:
            named = operator in ("", finding.operator) and module in ("", finding.module)
            if named and finding.severity is not Severity.NOTE:
                wrong.append(f"false alarm at {place}: {describe(finding)}")
    return wrong


def describe(finding: Finding) -> str:
    """A finding in one line."""
    at = f"@{finding.module}" if finding.module else ""
    where = f" {finding.source}" if finding.source is not None else ""
    return (
        f"{finding.code} {finding.operator}{at} {finding.phase.value} bytes={finding.bytes} calls={finding.calls} "
        f"cause={finding.cause}{where}"
    )
