"""Times operator calls of a trace, and whole steps."""

from nhwc.measure.clock import Clock
from nhwc.measure.replay import Lost, replay
from nhwc.measure.steps import time_step

__all__ = ["Clock", "Lost", "replay", "time_step"]
