"""The strip: a model's layers in the order in which they ran, each with the format of what it wrote, and the findings
on it. Pure data; to_html draws it.

A cell is one uninterrupted run of one module: a layer used twice has two cells, and the operators that a block calls
itself (an addition, a concatenation) are a cell of the block. A step without modules has a cell for each operator call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from nhwc.model import Call, Finding, Phase, Report, TensorMeta
from nhwc.report.culprits import cost_of, culprits, notes
from nhwc.strides import LayoutKind, layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class CellFormat(StrEnum):
    """What a layer wrote, as one letter."""

    CHANNELS_LAST = "L"
    CONTIGUOUS = "C"
    EITHER = "E"
    OTHER = "O"
    FLAT = "F"


FORMAT_TEXTS = {
    CellFormat.CHANNELS_LAST: "channels last",
    CellFormat.CONTIGUOUS: "contiguous",
    CellFormat.EITHER: "either (the bytes are both)",
    CellFormat.OTHER: "other strides",
    CellFormat.FLAT: "not 4-D or 5-D",
}
_FORMATS = {
    LayoutKind.CHANNELS_LAST: CellFormat.CHANNELS_LAST,
    LayoutKind.CHANNELS_LAST_3D: CellFormat.CHANNELS_LAST,
    LayoutKind.CONTIGUOUS: CellFormat.CONTIGUOUS,
    LayoutKind.AMBIGUOUS: CellFormat.EITHER,
}


@dataclass(frozen=True)
class Marker:
    """What one culprit, or what follows from it, costs in one cell.

    place: the culprit's rank, or the place of a note among the notes, from 1.
    weight: 0 to 1, the cost as a part of the costliest marker's.
    """

    place: int
    note: bool
    consequence: bool
    kind: str
    calls: int
    bytes: int
    ms: float | None
    weight: float = 0.0


@dataclass(frozen=True)
class Cell:
    """One run of a module.

    operator, tensor, main: its main output, the last 4-D or 5-D tensor it wrote anew, and the index of that call.
    """

    module: str
    module_type: str
    operator: str
    tensor: TensorMeta | None
    format: CellFormat
    main: int
    calls: tuple[int, ...]
    markers: tuple[Marker, ...] = ()


@dataclass(frozen=True)
class Segment:
    """Neighbouring cells under one part of the model. paths: the module path of that part, or of several small ones."""

    paths: tuple[str, ...]
    cells: tuple[Cell, ...]


def cell_format(tensor: TensorMeta | None) -> CellFormat:
    """The format of a layer's main output."""
    if tensor is None or len(tensor.shape) not in (4, 5):
        return CellFormat.FLAT
    return _FORMATS.get(layout(tensor.shape, tensor.strides).kind, CellFormat.OTHER)


def strips(report: Report) -> dict[Phase, list[Cell]]:
    """The cells of the forward and backward phases, in order, with their markers; phases without cells are left out.

    Markers are weighed by milliseconds where every finding has them, else by bytes.
    """
    found = _findings_by_call(report)
    by_call = len({call.module for call in report.trace.calls}) < 2
    cells: dict[Phase, list[Cell]] = {}
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        calls = [call for call in report.trace.calls if call.phase is phase]
        made = [cell for run in _runs(calls, by_call) if (cell := _cell(run, found)) is not None]
        if made:
            cells[phase] = made
    return _weighed(cells)


def segments(cells: list[Cell], limit: int = 40) -> list[Segment]:
    """Cells grouped by module path: parts of more than ``limit`` cells are split by the next part of the path, and
    neighbouring parts of one or two cells are put together."""
    return list(_joined(_split(cells, depth=0, limit=limit)))


def format_counts(cells: Iterable[Cell]) -> dict[CellFormat, int]:
    """How many cells have each format, in the order of CellFormat."""
    formats = [cell.format for cell in cells]
    return {each: formats.count(each) for each in CellFormat if each in formats}


def _runs(calls: list[Call], by_call: bool) -> Iterator[list[Call]]:
    run: list[Call] = []
    for call in calls:
        if run and (by_call or call.module != run[-1].module):
            yield run
            run = []
        run.append(call)
    if run:
        yield run


def _main_output(run: list[Call]) -> tuple[Call, TensorMeta] | None:
    """The last 4-D or 5-D tensor written anew, else the last tensor of any rank written anew."""
    written = [(call, tensor) for call in run if not call.view for tensor in call.outputs[:1]]
    images = [each for each in written if len(each[1].shape) in (4, 5)]
    return images[-1] if images else written[-1] if written else None


def _cell(run: list[Call], found: dict[int, _Found]) -> Cell | None:
    markers: dict[tuple[int, bool, bool], list[Finding]] = {}
    for call in run:
        if call.index in found:
            place, note, after, finding = found[call.index]
            markers.setdefault((place, note, after), []).append(finding)
    main = _main_output(run)
    if main is None and not markers:
        return None
    call, tensor = main or (run[-1], run[-1].outputs[0] if run[-1].outputs else None)
    return Cell(
        module=call.module,
        module_type=call.module_type,
        operator=call.operator,
        tensor=tensor,
        format=cell_format(tensor),
        main=call.index,
        calls=tuple(each.index for each in run),
        markers=tuple(_marker(place, note, after, each) for (place, note, after), each in markers.items()),
    )


_Found = tuple[int, bool, bool, Finding]
"""Place of the culprit or note, whether it is a note, whether the finding follows from it, and the finding."""


def _findings_by_call(report: Report) -> dict[int, _Found]:
    """The finding on each operator call; where a call has several, that of the highest ranked culprit."""
    found: dict[int, _Found] = {}
    for note, group in ((False, culprits(report)), (True, notes(report))):
        for place, culprit in enumerate(group, 1):
            for number, finding in enumerate(culprit.findings + culprit.consequences):
                for index in finding.call_indices:
                    found.setdefault(index, (place, note, number >= len(culprit.findings), finding))
    return found


def _marker(place: int, note: bool, consequence: bool, findings: list[Finding]) -> Marker:
    """One finding for each operator call in the cell: its cost is spread evenly over the calls it stands for."""
    parts = [(cost_of([finding]), len(set(finding.call_indices))) for finding in findings]
    known = [cost.ms / calls for cost, calls in parts if cost.ms is not None]
    return Marker(
        place=place,
        note=note,
        consequence=consequence,
        kind=findings[0].kind,
        calls=len(findings),
        bytes=round(sum(cost.bytes / calls for cost, calls in parts)),
        ms=sum(known) if known else None,
    )


def _weighed(cells: dict[Phase, list[Cell]]) -> dict[Phase, list[Cell]]:
    markers = [mark for each in cells.values() for cell in each for mark in cell.markers if not mark.note]
    by_ms = all(mark.ms is not None for mark in markers)

    def amount(mark: Marker) -> float:
        return (mark.ms or 0.0) if by_ms else float(mark.bytes)

    most = max((amount(mark) for mark in markers), default=0.0) or 1.0

    def weighed(cell: Cell) -> Cell:
        return replace(cell, markers=tuple(replace(mark, weight=amount(mark) / most) for mark in cell.markers))

    return {phase: [weighed(cell) if cell.markers else cell for cell in each] for phase, each in cells.items()}


def _split(cells: list[Cell], depth: int, limit: int) -> Iterator[Segment]:
    """Runs of cells with the same first ``depth + 1`` parts of their path; what the model itself does between two
    layers (adding gradients, say) interrupts no run."""
    run: list[Cell] = []

    def parts(cell: Cell) -> tuple[str, ...]:
        return tuple(cell.module.split(".")[: depth + 1])

    def closed() -> Iterator[Segment]:
        deeper = len(run) > limit and any(len(cell.module.split(".")) > depth + 1 for cell in run)
        if deeper:
            yield from _split(run, depth + 1, limit)
        elif run:
            yield Segment((".".join(parts(run[0])),), tuple(run))

    for cell in cells:
        if run and cell.module and parts(cell) != parts(run[0]):
            yield from closed()
            run = []
        run.append(cell)
    yield from closed()


def _joined(parts: Iterable[Segment], small: int = 2) -> Iterator[Segment]:
    waiting: list[Segment] = []

    def joined() -> Segment:
        paths = tuple(path for part in waiting for path in part.paths)
        return Segment(paths, tuple(cell for part in waiting for cell in part.cells))

    for part in parts:
        if waiting and (len(part.cells) > small or len(waiting[0].cells) > small):
            yield joined()
            waiting = []
        waiting.append(part)
    if waiting:
        yield joined()
