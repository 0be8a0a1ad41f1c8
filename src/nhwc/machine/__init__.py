"""What the machine and the installed torch are: everything that decides how fast a memory format is here."""

from nhwc.machine import allocation, checks
from nhwc.machine.child import ChildError
from nhwc.machine.conditions import conditions
from nhwc.machine.cores import available_cores
from nhwc.machine.environment import environment
from nhwc.machine.load import LoadMeter
from nhwc.machine.processor import instruction_flags, processor_name
from nhwc.machine.snapshot import Snapshot, snapshot
from nhwc.machine.sources import Sources

__all__ = [
    "ChildError",
    "LoadMeter",
    "Snapshot",
    "Sources",
    "allocation",
    "available_cores",
    "checks",
    "conditions",
    "environment",
    "instruction_flags",
    "processor_name",
    "snapshot",
]
