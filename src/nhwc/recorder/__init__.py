"""Runs a model or a step once and returns its Trace, leaving everything as it was."""

from nhwc.recorder.record import record
from nhwc.recorder.run import Options, run_model

__all__ = ["Options", "record", "run_model"]
