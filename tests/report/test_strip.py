"""The strip: layers in the order in which they ran, each with the format of what it wrote, findings where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report import sample

from nhwc.model import Phase, Report, TensorMeta
from nhwc.report.strip import CellFormat, cell_format, format_counts, segments, strips


def meta(shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorMeta:
    return TensorMeta(shape, strides, "float32", "cpu", 1, 0, 4)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (meta((2, 3, 4, 5), (60, 1, 15, 3)), CellFormat.CHANNELS_LAST),
        (meta((2, 3, 4, 5), (60, 20, 5, 1)), CellFormat.CONTIGUOUS),
        (meta((2, 3, 2, 4, 5), (120, 1, 60, 15, 3)), CellFormat.CHANNELS_LAST),
        (meta((2, 3, 1, 1), (3, 1, 1, 1)), CellFormat.EITHER),
        (meta((2, 3, 4, 5), (60, 20, 1, 4)), CellFormat.OTHER),
        (meta((2, 3, 4, 5), (0, 0, 0, 0)), CellFormat.OTHER),
        (meta((2, 3), (3, 1)), CellFormat.FLAT),
        (None, CellFormat.FLAT),
    ],
)
def test_one_letter_for_what_a_layer_wrote(tensor: TensorMeta | None, expected: CellFormat) -> None:
    assert cell_format(tensor) is expected


def test_cells_follow_the_order_of_execution() -> None:
    cells = strips(sample.shufflenet())[Phase.FORWARD]
    modules = [cell.module for cell in cells[:8]]
    assert modules == [
        *("conv1.conv", "conv1.bn", "conv1.relu"),
        *("stage2.0.branch2.conv", "stage2.0.branch2.bn", "stage2.0.branch2.relu"),
        *("stage2.0", "stage2.1.branch2.conv"),
    ]
    assert [cell.format.value for cell in cells[:8]] == list("LLLLLLCL")


def test_a_cell_shows_what_was_written_not_the_view_after_it() -> None:
    cell = next(cell for cell in strips(sample.shufflenet())[Phase.FORWARD] if cell.module == "stage2.0")
    assert cell.operator == "aten.clone.default"
    assert cell.tensor is not None
    assert len(cell.tensor.shape) == 5


def test_a_layer_that_runs_twice_has_two_cells() -> None:
    report = sample.clean_resnet()
    calls = tuple(
        replace(call, module="stem.relu") if call.module == "layer1.0.relu" else call for call in report.trace.calls
    )
    cells = strips(Report(replace(report.trace, calls=calls), []))[Phase.FORWARD]
    assert sum(cell.module == "stem.relu" for cell in cells) == 2


def test_backward_is_a_strip_of_its_own() -> None:
    both = strips(sample.training())
    assert list(both) == [Phase.FORWARD, Phase.BACKWARD]
    assert [cell.module for cell in both[Phase.BACKWARD][:2]] == ["head.pool", "features.12"]
    assert list(strips(sample.shufflenet())) == [Phase.FORWARD]


def test_markers_carry_the_whole_cost_of_the_findings() -> None:
    report = sample.training()
    markers = [mark for cells in strips(report).values() for cell in cells for mark in cell.markers]
    assert sum(mark.ms or 0.0 for mark in markers) == pytest.approx(report.lost_ms)
    assert sum(mark.bytes for mark in markers if not mark.note) == report.lost_bytes
    assert max(mark.weight for mark in markers) == 1.0
    assert [(mark.place, mark.consequence, mark.note) for mark in markers] == [
        (2, False, False),
        (1, False, False),
        (1, True, False),
        (1, False, True),
    ]


def test_a_finding_on_many_calls_is_spread_over_their_cells() -> None:
    report = sample.clean_resnet()
    calls = tuple(call.index for call in report.trace.calls[:4])
    wide = sample.finding(report.trace.calls[0], 1, call_indices=calls, calls=4, ms=2.0, bytes=4000)
    cells = strips(Report(report.trace, [wide]))[Phase.FORWARD]
    marks = [mark for cell in cells for mark in cell.markers]
    assert [(mark.ms, mark.bytes, mark.weight) for mark in marks] == [(0.5, 1000, 1.0)] * 4


def test_a_step_without_modules_has_a_cell_for_each_call() -> None:
    report = sample.clean_resnet()
    calls = tuple(replace(call, module="", module_type="") for call in report.trace.calls)
    cells = strips(Report(replace(report.trace, calls=calls), []))[Phase.FORWARD]
    assert len(cells) == sum(not call.view for call in calls)


def test_segments_keep_every_cell_in_order() -> None:
    cells = strips(sample.large(900))[Phase.FORWARD]
    for limit in (5, 40, 10_000):
        parts = segments(cells, limit)
        assert [cell for part in parts for cell in part.cells] == cells
    paths = [part.paths for part in segments(strips(sample.clean_resnet())[Phase.FORWARD])]
    assert paths == [("stem",), ("layer1",), ("layer2",), ("layer3",), ("layer4",), ("avgpool", "fc")]


def test_what_the_model_itself_does_between_two_layers_interrupts_no_segment() -> None:
    cells = strips(sample.clean_resnet())[Phase.FORWARD]
    between = [replace(cell, module="" if number == 8 else cell.module) for number, cell in enumerate(cells)]
    assert [len(part.cells) for part in segments(between)] == [len(part.cells) for part in segments(cells)]


def test_counts_name_only_the_formats_that_occur() -> None:
    cells = strips(sample.clean_resnet())[Phase.FORWARD]
    assert format_counts(cells) == {CellFormat.CHANNELS_LAST: 35, CellFormat.EITHER: 1, CellFormat.FLAT: 1}
