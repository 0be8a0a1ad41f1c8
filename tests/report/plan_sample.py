"""A made-up plan."""

from __future__ import annotations

from dataclasses import replace

from nhwc.model import Environment
from nhwc.plan import FormatTimes, Move, Placement, Plan, PlanInput, Predicted

WHERE = Environment("2.14.1", "3.11.9", "cpu", "Example CPU", 2, "0.1.0")


def plan() -> Plan:
    return Plan(
        target="net",
        environment=WHERE,
        training=False,
        amp="",
        inputs=(PlanInput("input 0", (2, 3, 64, 64), "float32", "cpu"),),
        keywords=(),
        tree="0123456789abcdef",
        placements=(
            Placement(
                "features.conv",
                "Conv2d",
                "channels_last",
                1,
                FormatTimes(12.5, 8.25),
                False,
                "measured 4.250 ms faster in channels last",
            ),
            Placement(
                "", "Net", "contiguous", 2, FormatTimes(0.5, 1.5), True, "estimated 1.000 ms faster in contiguous"
            ),
        ),
        moves=(
            Move("before", "", "channels_last", 98304, 0.25, 1, 0),
            Move("after", "features.conv", "contiguous", 524288, 0.5, 1, 1),
            Move("before", "features.other", "contiguous", 524288, 0.0, 0, 1),
        ),
        kernels=("max_pool2d",),
        predicted=Predicted(13.0, 9.75, 9.5),
    )


def hostile() -> Plan:
    made = plan()
    first = replace(made.placements[0], module="[bold red]\u202e" + "m" * 130)
    return replace(made, target="\x1b[31m", placements=(first, *made.placements[1:]), training=True, amp="bfloat16")


def nothing() -> Plan:
    return replace(plan(), placements=(), moves=(), inputs=(), kernels=(), predicted=Predicted(1.0, 1.0, 1.0))


SAMPLES = {"plan": plan, "hostile": hostile, "nothing": nothing}
