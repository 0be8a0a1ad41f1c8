"""The fastest format for every module of a model, as an exact labelling: data in, data out, without torch."""

from nhwc.planner.estimates import estimate_ms
from nhwc.planner.flow import Flow, Value, flow, labelled
from nhwc.planner.planning import Cost, Solution, plan_for

__all__ = ["Cost", "Flow", "Solution", "Value", "estimate_ms", "flow", "labelled", "plan_for"]
