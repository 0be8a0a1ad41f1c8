"""Times operator calls of a trace, and whole steps."""

from nhwc.measure.alone import call_key, conversion_call, time_calls
from nhwc.measure.clock import Clock
from nhwc.measure.composites import composite
from nhwc.measure.replay import Lost, replay
from nhwc.measure.savings import Trial, savings
from nhwc.measure.steps import time_step

__all__ = [
    "Clock",
    "Lost",
    "Trial",
    "call_key",
    "composite",
    "conversion_call",
    "replay",
    "savings",
    "time_calls",
    "time_step",
]
