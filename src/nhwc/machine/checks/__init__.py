"""The checks of the doctor: one function a fact, one file a subject; a check registers itself where it is written.

The order of the imports below is the order of the subjects.
"""

from nhwc.machine.checks import build, processor, threads, memory, settings, cuda, combinations  # noqa: I001 - see above
from nhwc.machine.checks.registry import Answer, check, checks, facts

__all__ = [
    "Answer",
    "build",
    "check",
    "checks",
    "combinations",
    "cuda",
    "facts",
    "memory",
    "processor",
    "settings",
    "threads",
]
