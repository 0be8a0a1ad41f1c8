"""What the HTML templates show, as plain strings and numbers: every decision about words is made here, none there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nhwc.model import Phase, Severity
from nhwc.report.culprits import consequences_text, cost_of, culprits, kernel_text, notes
from nhwc.report.formatting import (
    NOTHING,
    bytes_text,
    finding_text,
    module_text,
    ms_text,
    operator_text,
    percent_text,
    plural,
    shape_text,
    source_text,
    visible,
)
from nhwc.report.planned_strip import PlanMark, plan_legend, plan_marks
from nhwc.report.sections import confusions, facts, limits
from nhwc.report.strip import FORMAT_TEXTS, CellFormat, cell_format, format_counts, segments, strips
from nhwc.report.summary import Verdict, headline, verdict
from nhwc.report.totals import columns

if TYPE_CHECKING:
    from nhwc.model import Call, Finding, Report, TensorMeta
    from nhwc.plan import Plan
    from nhwc.report.culprits import Culprit
    from nhwc.report.strip import Cell, Marker, Segment
    from nhwc.report.totals import Row

_FEW_CELLS, _MANY_CELLS = 2, 600
_LETTER_PIXELS, _CELL_PIXELS = 7, 24
View = dict[str, Any]
_VERDICTS = {
    Verdict.RAISES: ("!", "The step raises", ""),
    Verdict.WRONG: ("!", "Numbers can be wrong", ""),
    Verdict.LOST: ("×", "Losses found", ""),
    Verdict.UNUSED: ("–", "Not in channels last", ""),
    Verdict.CLEAN: ("✓", "Clean", "good"),
}
_MARKS = {CellFormat.CHANNELS_LAST: "", CellFormat.FLAT: "–"}
_PHASES = {Phase.FORWARD: "Forward", Phase.BACKWARD: "Backward"}
_BARS = {
    "": "cost of a culprit",
    " after": "cost of what follows from it",
    " wrong": "numbers can be wrong",
    " note": "note",
}
_KINDS = {
    "copy": "A copy",
    "loss": "A loss of the format",
    "slow": "Slow in channels last",
    "risk": "A risk",
    "numerics": "A fault in the numbers",
}


def page_view(report: Report, plan: Plan | None = None) -> View:
    """Everything that the templates name, without the operator calls. plan: shown on the strip."""
    marks = None if plan is None else plan_marks(plan)
    found, said = culprits(report), headline(report)
    lead, colon, rest = said.partition(":")
    sign, text, style = _VERDICTS[verdict(report)]
    cells = strips(report)
    bars = _bars_legend([marker for each in cells.values() for cell in each for marker in cell.markers])
    unit = "milliseconds" if cost_of(report.findings).ms is not None else "bytes"
    texts = columns(report, found)
    doubts = [("What this report cannot see", limits(report)), ("Where the recorder was unsure", confusions(report))]
    risks = notes(report)
    return {
        "target": visible(report.trace.target),
        "version": visible(report.trace.environment.nhwc),
        "lead": lead + colon,
        "rest": rest,
        "verdict": {"sign": sign, "text": text, "style": style},
        "figures": _figures(report, found),
        "phases": [_phase_view(phase, each, marks) for phase, each in cells.items()],
        "plan": None if plan is None or marks is None else plan_legend(plan, marks),
        "counts": [
            {"letter": each.value, "mark": _mark(each), "text": FORMAT_TEXTS[each], "count": f"{count:,}"}
            for each, count in format_counts(cell for each in cells.values() for cell in each).items()
        ],
        "bars": bars,
        "scale": f"; a bar above it is what a culprit costs there, in {unit}" if bars else "",
        "rows": [_culprit_view(culprit, texts.own[place], texts.after[place]) for place, culprit in enumerate(found)],
        "columns": texts,
        "no_culprits": _no_culprits(report),
        "notes": [_note_view(culprit, place) for place, culprit in enumerate(risks, 1)],
        "note_count": plural(len(risks), "note"),
        "doubts": [(title, sentences) for title, sentences in doubts if sentences],
        "facts": facts(report),
        "call_count": plural(len(report.trace.calls), "operator call"),
    }


def calls_view(report: Report) -> View:
    """The operator calls as rows of numbers into one table of strings: what the page's script reads."""
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(visible(text), len(strings))

    rows = [_call_row(call, number) for call in report.trace.calls]
    return {"strings": list(strings), "calls": rows}


def _call_row(call: Call, number: Any) -> list[int | str | None]:
    written = call.outputs[0] if call.outputs else None
    form = "a view, nothing written" if call.view else FORMAT_TEXTS[cell_format(written)]
    return [
        number(call.phase.value),
        number(operator_text(call.operator)),
        number(module_text(call.module)),
        number(call.module_type),
        number(_shape(call.inputs[0] if call.inputs else None)),
        number(_shape(written)),
        number(shape_text(written.strides) if written is not None else ""),
        number(form),
        None if call.ms is None else ms_text(call.ms).removesuffix(" ms"),
        number(source_text(call.source)),
    ]


def _shape(tensor: TensorMeta | None) -> str:
    return "" if tensor is None else shape_text(tensor.shape)


def _mark(form: CellFormat) -> str:
    return _MARKS.get(form, form.value)


def _no_culprits(report: Report) -> str:
    if report.trace.error is not None:
        return "None up to the operator call that raises."
    return "None: no operator call copies, loses or reorders a memory format."


def _figures(report: Report, found: list[Culprit]) -> list[View]:
    cost, step = cost_of(report.findings), report.trace.step
    places = sum(len(culprit.findings) for culprit in found)
    rows: list[tuple[str, str, str]] = []
    if found:
        if cost.ms is not None:
            share = f"{percent_text(cost.share(report))} of {ms_text(step.median_ms)}" if step is not None else ""
            rows.append(("Time lost in a step", ms_text(cost.ms, cost.spread_ms), share))
        if report.kernel_ms is not None and report.kernel_ms > 0:
            rows.append(("Kernels would save", ms_text(report.kernel_ms), "with nhwc.kernels.use()"))
        rows.append(("Bytes moved", bytes_text(cost.bytes), ""))
        rows.append(("Culprits", f"{len(found):,}", f"in {plural(places, 'place')}" if places > len(found) else ""))
    elif step is not None:
        rows.append(("Step", ms_text(step.median_ms, step.spread_ms), ""))
    rows.append(("Operator calls", f"{len(report.trace.calls):,}", ""))
    return [{"label": label, "value": value, "more": more} for label, value, more in rows]


def _phase_view(phase: Phase, cells: list[Cell], marks: dict[str, PlanMark] | None) -> View:
    return {
        "label": _PHASES[phase],
        "count": plural(len(cells), "run of a layer", "runs of layers"),
        "dense": len(cells) > _MANY_CELLS,
        "segments": [_segment_view(each, marks) for each in segments(cells, limit=max(40, len(cells) // 16))],
    }


def _segment_view(segment: Segment, marks: dict[str, PlanMark] | None) -> View:
    names = [visible(module_text(path)) for path in segment.paths]
    label = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    room = len(segment.cells) * _CELL_PIXELS
    fitting = [text for text in (label, names[0]) if len(text) * _LETTER_PIXELS <= room]
    short = fitting[0] if fitting else names[0] if len(segment.cells) > _FEW_CELLS else "\N{NO-BREAK SPACE}"
    return {"label": label, "short": short, "cells": [_cell_view(cell, marks) for cell in segment.cells]}


def _cell_view(cell: Cell, marks: dict[str, PlanMark] | None) -> View:
    return {
        "plan": None if marks is None else marks.get(cell.module, PlanMark()),
        "letter": cell.format.value,
        "mark": _mark(cell.format),
        "call": cell.main,
        "text": visible(f"{module_text(cell.module)}, {operator_text(cell.operator)}: {FORMAT_TEXTS[cell.format]}"),
        "bars": [_bar_view(marker) for marker in cell.markers],
    }


def _bar_style(marker: Marker) -> str:
    if marker.note:
        return " note"
    return " wrong" if marker.kind == "numerics" else " after" if marker.consequence else ""


def _bars_legend(markers: list[Marker]) -> list[tuple[str, str]]:
    styles = {_bar_style(marker) for marker in markers}
    return [(style, text) for style, text in _BARS.items() if style in styles]


def _bar_view(marker: Marker) -> View:
    style = _bar_style(marker)
    if marker.note:
        return {"target": f"n{marker.place}", "style": style, "height": 0, "text": f"note {marker.place}"}
    cost = " and ".join([ms_text(marker.ms)] * (marker.ms is not None) + [bytes_text(marker.bytes)])
    what = f"follows from culprit {marker.place}" if marker.consequence else f"culprit {marker.place}"
    return {"target": f"c{marker.place}", "style": style, "height": round(marker.weight, 2), "text": f"{what}: {cost}"}


def _culprit_view(culprit: Culprit, own: Row, after: Row | None) -> View:
    first = culprit.first
    return {
        **_words(culprit),
        "id": f"c{culprit.rank}",
        "rank": culprit.rank,
        "severity": first.severity.value,
        "title": culprit.title,
        "operator": visible(first.operator),
        "kind": _KINDS.get(first.kind, visible(first.kind)),
        "phase": first.phase.value,
        "own": own,
        "after": after,
        "places": [_place_view(finding) for finding in culprit.findings],
        "after_text": consequences_text(culprit) if after is not None else "",
        "after_places": [_place_view(finding, named=True) for finding in culprit.consequences],
    }


def _note_view(culprit: Culprit, place: int) -> View:
    return {**_words(culprit), "id": f"n{place}", "placed": bool(culprit.first.source or culprit.first.module)}


def _words(culprit: Culprit) -> View:
    first, text = culprit.first, finding_text(culprit.first)
    return {
        "code": visible(first.code),
        "message": visible(first.message.strip().rstrip(".")),
        "advice": culprit.advice,
        "kernel": kernel_text(culprit),
        "modules": culprit.modules,
        "source": text.source if first.source else "",
        "function": visible(first.source.function) if first.source else "",
        "line": text.line,
    }


def _place_view(finding: Finding, named: bool = False) -> View:
    text = finding_text(finding)
    costs = finding.severity is not Severity.NOTE
    return {
        "module": f"{text.module}: {text.operator}" if named else text.module,
        "shapes": _steps(finding.shapes[:1] if len(set(finding.shapes)) == 1 else finding.shapes),
        "strides": _steps(finding.strides),
        "calls": f"{finding.calls:,}",
        "bytes": bytes_text(finding.bytes) if costs else NOTHING,
        "ms": ms_text(finding.ms, finding.ms_spread).removesuffix(" ms") if costs else NOTHING,
    }


def _steps(tuples: tuple[tuple[int, ...], ...]) -> list[str]:
    """From the first tensor to the last: "(2, 3)", "→ (3, 2)"."""
    return [f"{'→ ' if place else ''}{shape_text(each)}" for place, each in enumerate(tuples)] or [NOTHING]
