"""What candidates took on this machine, kept between processes.

The format: that of nhwc.kept_times, with a request as what was measured, and its candidates as labels.
"""

from __future__ import annotations

from pathlib import Path

from nhwc.kept_times import KeptTimes
from nhwc.kernels.native.library import INTERFACE, status

FORMAT, VERSION = "nhwc engine times", 1


class Measurements(KeptTimes):
    """Times by request and label. machine: names the processor; threads and sizes are in the requests."""

    def __init__(self, machine: str, where: Path | None) -> None:
        machine = f"{machine}, {status().instruction_set}, interface {INTERFACE}"
        super().__init__(FORMAT, VERSION, "engine", machine, where)
