"""One self-contained Python file that shows one operator call go wrong, without nhwc: ready for a bug report."""

from nhwc.verification.reproduction.registration import is_overridden
from nhwc.verification.reproduction.writer import Written, write_reproducer

__all__ = ["Written", "is_overridden", "write_reproducer"]
