"""An engine measured: every step within whole calls, and the machine's limits beside it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from nhwc.engine_report import Alternative, EngineReport, StepTiming
from nhwc.inference.building import Plan
from nhwc.inference.contents import Contents, Ready
from nhwc.inference.describing import bytes_of, flop_of, operation_name
from nhwc.inference.items import Item
from nhwc.inference.limits import measured_limits
from nhwc.inference.loaded import Loaded
from nhwc.inference.run import Runner
from nhwc.kernels.native.library import status


def measured_report(contents: Contents, found: Ready, tensors: Sequence[torch.Tensor], repeats: int) -> EngineReport:
    """Run it ``repeats`` times with a clock on every step, and as often without one."""
    threads = torch.get_num_threads()
    with torch.no_grad():
        runner = found.ready(threads)
        plan = found.plans[found.nearest(threads) if isinstance(found, Loaded) else threads]
        run_ms = _whole_calls(runner, tensors, repeats)
        steps = _timed_steps(runner, plan, tensors, repeats)
    return EngineReport(
        target=contents.target,
        inputs=tuple((tuple(each.shape), str(each.dtype).removeprefix("torch.")) for each in tensors),
        threads=threads,
        exact=found.exact,
        steps=steps,
        run_ms=run_ms,
        arena_bytes=plan.arena_bytes,
        least_arena_bytes=plan.least_bytes,
        scratch_bytes=runner.scratch_bytes,
        weight_bytes=_weight_bytes(plan),
        build_s=found.build_s,
        limits=measured_limits(threads),
        instruction_set=status().instruction_set,
        accuracy=contents.accuracy,
    )


def _whole_calls(runner: Runner, tensors: Sequence[torch.Tensor], repeats: int) -> float:
    runner(tensors)
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        runner(tensors)
        taken.append(time.perf_counter() - start)
    return 1000.0 * statistics.median(taken)


def _timed_steps(runner: Runner, plan: Plan, tensors: Sequence[torch.Tensor], repeats: int) -> tuple[StepTiming, ...]:
    taken: dict[Item, list[float]] = {item: [] for item in plan.placement.items}
    for _ in range(repeats):
        runner(tensors, lambda item, seconds: taken[item].append(seconds))
    return tuple(_step(item, plan, 1000.0 * statistics.median(times)) for item, times in taken.items())


def _step(item: Item, plan: Plan, ms: float) -> StepTiming:
    choice = plan.choices.get(item)
    timed = {} if choice is None else choice.times_ms
    return StepTiming(
        module=item.node.path,
        operation=operation_name(item),
        algorithm="torch" if choice is None else choice.label,
        inputs=tuple(each.shape for each in item.inputs),
        output=None if item.output is None else item.output.shape,
        flop=flop_of(item),
        moved_bytes=bytes_of(item),
        ms=ms,
        alternatives=tuple(Alternative(label, time_ms) for label, time_ms in sorted(timed.items(), key=lambda x: x[1])),
        source=item.node.source,
    )


def _weight_bytes(plan: Plan) -> int:
    """What steps read and no call changes, each memory once."""
    held = [tensor for choice in plan.choices.values() for tensor in choice.step.constants]
    held += [
        place.buffer.constant
        for item in plan.placement.items
        for place in item.reads
        if place.buffer.constant is not None
    ]
    sizes = {each.data_ptr(): each.numel() * each.element_size() for each in held}
    return sum(sizes.values())
