"""Runs a model or a step once and returns its Trace, leaving everything as it was."""

from nhwc.recorder.record import record
from nhwc.recorder.run import Options, device_of, run_model, tensors_in

__all__ = ["Options", "device_of", "record", "run_model", "tensors_in"]
