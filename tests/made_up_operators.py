"""Surveys that are made up, for tests of what is made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nhwc.operators import Failure, Handling, OperatorRow, Pass, Speed, Survey, Truth
from nhwc.timing import Conditions, Ratio

CONDITIONS = Conditions(
    "cpu", "a processor", 2.0, 2, "Linux", "glibc malloc", (("torch", "2.14.1"), ("torchvision", "0.29.1"))
)
KEEPS = Pass(Handling.KEEPS, kept=4)
LOSES = Pass(
    Handling.LOSES,
    lost=3,
    copied_bytes=2048,
    copiers=("aten::contiguous",),
    example="(2, 4, 6, 6): (2, 4, 3, 3) with strides (36, 9, 3, 1)",
)
COPIES = Pass(Handling.COPIES, kept=4, copied_bytes=4096, contiguous_copied_bytes=1024, copiers=("aten::clone",))
SLOWER = Speed((8, 64, 56, 56), Ratio(0.5, 0.45, 0.55, 20), 2.0, 4.0)
FASTER = Speed((8, 64, 56, 56), Ratio(2.0, 1.8, 2.2, 20), 4.0, 2.0)


def row(name: str, **changes: Any) -> OperatorRow:
    """A row of an operator that keeps the format."""
    base = OperatorRow(
        name,
        "operator",
        2,
        "float32",
        "cpu",
        "eager",
        4,
        KEEPS,
        Truth.RIGHT,
        KEEPS,
        KEEPS,
        1e-7,
        2e-7,
        ("one channel",),
    )
    return replace(base, **changes)


ROWS = (
    row("relu"),
    row("relu", dtype="bfloat16"),
    row("avg_pool3d", dims=3, forward=LOSES, backward=LOSES, speed=SLOWER),
    row("channel shuffle by hand", group="idiom", forward=COPIES, speed=FASTER, training_speed=FASTER),
    row("odd", truth=Truth.WRONG, wrong_edges=("one pixel",), error=0.5, backward=None, expanded=None),
)


def survey(*rows: OperatorRow, **changes: Any) -> Survey:
    """A survey of rows, by default of every sort."""
    base = Survey(
        CONDITIONS,
        rows or ROWS,
        (Failure("dies", "the process of the operators died with signal 11"),),
        ("float32", "bfloat16"),
        ("eager",),
        "",
        ("torch's own samples are left out",),
        12.5,
        "2026-11-30T06:00:00+00:00",
    )
    return replace(base, **changes)
