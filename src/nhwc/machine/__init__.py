"""What the machine and the installed torch are: everything that decides how fast a memory format is here."""

from nhwc.machine.conditions import conditions
from nhwc.machine.cores import available_cores
from nhwc.machine.environment import environment
from nhwc.machine.load import LoadMeter
from nhwc.machine.processor import instruction_flags, processor_name

__all__ = ["LoadMeter", "available_cores", "conditions", "environment", "instruction_flags", "processor_name"]
