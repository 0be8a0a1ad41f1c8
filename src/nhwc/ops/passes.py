"""What one direction of an operator does with the format, over all runs."""

from __future__ import annotations

from collections.abc import Sequence

from nhwc.operators import Handling, Pass
from nhwc.ops.attempt import Direction
from nhwc.ops.case import Case
from nhwc.ops.copies import Copied, copied
from nhwc.ops.instruments import Watch
from nhwc.ops.runs import Run


def passed(name: str, runs: Sequence[Run], watch: Watch | None) -> Pass | None:
    """One direction over all runs; None where no run has it. watch: what saw the copies inside, if anything did."""
    having = [run for run in runs if name in run.contiguous and not run.contiguous[name].error]
    if not having:
        return None
    kept = lost = viewed = refused = 0
    inside, before = Copied(), Copied()
    example = ""
    for run in having:
        last = run.last.get(name) or run.last["forward"]
        if last.error:
            refused += 1
            example = example or f"{shapes_text(run.case)}: {last.error}"
            continue
        kept += last.handlings.count(Handling.KEEPS)
        viewed += last.handlings.count(Handling.VIEW)
        lost += last.handlings.count(Handling.LOSES)
        if watch is not None:
            inside += copied(watch.copies(run.marks[True, name]))
            before += copied(watch.copies(run.marks[False, name]))
        example = example or _lost_example(run.case, last)
    extra = inside.nbytes > before.nbytes
    handling = _handling(kept, lost, viewed, refused, len(having), extra)
    return Pass(
        handling, kept, lost, viewed, refused, inside.nbytes, before.nbytes, inside.names if extra else (), example
    )


def shapes_text(case: Case) -> str:
    """The shapes of its first tensors."""
    return " ".join(str(tuple(tensor.shape)) for tensor in case.tensors[:3])


def _handling(kept: int, lost: int, viewed: int, refused: int, runs: int, extra: bool) -> Handling:
    if refused == runs:
        return Handling.REFUSES
    if lost or refused:
        return Handling.SOMETIMES if kept or (refused and not lost) else Handling.LOSES
    if extra:
        return Handling.COPIES
    if kept:
        return Handling.KEEPS
    return Handling.VIEW if viewed else Handling.NO_FORMAT


def _lost_example(case: Case, last: Direction) -> str:
    written = [tensor for tensor in last.tensors if tensor is not None or len(last.tensors) == len(last.handlings)]
    for tensor, handling in zip(written, last.handlings, strict=False):
        if handling == Handling.LOSES and tensor is not None:
            return f"{shapes_text(case)}: {tuple(tensor.shape)} with strides {tuple(tensor.stride())}"
    return ""
