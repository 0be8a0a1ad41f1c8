"""Makes a row of the table of one operator: of its runs, its edges, and its speed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import torch

from nhwc.operators import Mode, OperatorRow, Pass, Truth
from nhwc.ops.attempt import DIRECTIONS
from nhwc.ops.case import Case
from nhwc.ops.instruments import Instruments, Operator, Watch
from nhwc.ops.judging import edge_judged, judged, worst_of_each
from nhwc.ops.passes import passed
from nhwc.ops.runs import Run, both, compiled
from nhwc.ops.values import worst


def probe(
    operator: Operator,
    dims: int,
    dtype: torch.dtype,
    device: str,
    instruments: Instruments,
    mode: Mode = Mode.EAGER,
) -> OperatorRow | None:
    """The row of an operator; None where it takes no picture (or volume) of that dtype.

    The inputs are in channels last and, to compare, contiguous. Changes torch's seed. mode: that of the row; who asks
    for kernels has switched them on. Compiled, the first sample that runs stands for all, and nothing is measured.
    """
    cases = operator.cases(dims, dtype, device)
    if mode == Mode.COMPILED:
        first = next((run for case in cases if (run := compiled(case)) is not None), None)
        return None if first is None else _row(operator, dims, dtype, device, mode, [first], None)
    watch = instruments.watch()
    with watch.running():
        runs = [run for case in cases if (run := both(case, watch)) is not None]
    if not runs:
        return None
    row = _row(operator, dims, dtype, device, mode, runs, watch)
    tried = [run.case for run in runs]
    row = replace(row, kernels=instruments.serving(tried))
    return _with_speed(_with_edges(row, operator, tried), operator, tried, instruments)


def _row(
    operator: Operator,
    dims: int,
    dtype: torch.dtype,
    device: str,
    mode: Mode,
    runs: Sequence[Run],
    watch: Watch | None,
) -> OperatorRow:
    verdicts = [judged(run) for run in runs] if operator.is_comparable else []
    together = worst([verdict for verdict, _ in verdicts])
    passes: dict[str, Pass | None] = {name: passed(name, runs, watch) for name in DIRECTIONS}
    forward = passes["forward"]
    assert forward is not None
    return OperatorRow(
        operator.name,
        operator.group,
        dims,
        str(dtype).removeprefix("torch."),
        device,
        mode,
        len(runs),
        forward,
        together.truth,
        passes["backward"],
        passes["expanded"],
        together.error,
        together.contiguous_error,
        faults=worst_of_each([fault for _, found in verdicts for fault in found]),
    )


def _with_edges(row: OperatorRow, operator: Operator, cases: Sequence[Case]) -> OperatorRow:
    if not operator.is_comparable:
        return row
    found = {label: edge_judged(case) for label, case in operator.edges(cases, row.dims)}
    compared = {label: each for label, each in found.items() if each and each[0] != Truth.UNCOMPARED}
    wrong = {label: faults for label, (truth, faults) in compared.items() if truth == Truth.WRONG}
    faults = (replace(fault, edge=label) for label, each in wrong.items() for fault in each[:1])
    return replace(row, edges=tuple(compared), wrong_edges=tuple(wrong), faults=(*row.faults, *faults))


def _with_speed(row: OperatorRow, operator: Operator, cases: Sequence[Case], instruments: Instruments) -> OperatorRow:
    race, large = instruments.race, None
    if race is None:
        return row
    with contextlib.suppress(Exception):  # arguments that no such size fits
        large = operator.large(cases, row.dims)
    if large is None:
        return replace(row, note="not measured, since its arguments do not grow to a real size")
    speed = race(large, False)
    if isinstance(speed, str):
        return replace(row, note=f"not measured, since {speed}")
    row = replace(row, speed=speed)
    if row.backward is None or not instruments.trains:
        return row
    training = race(large, True)
    if isinstance(training, str):
        return replace(row, note=f"forward and backward not measured, since {training}")
    return replace(row, training_speed=training)
