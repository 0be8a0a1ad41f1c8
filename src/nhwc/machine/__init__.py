"""What the machine and the installed torch are: everything that decides how fast a memory format is here."""

from nhwc.machine.environment import environment, processor_name

__all__ = ["environment", "processor_name"]
