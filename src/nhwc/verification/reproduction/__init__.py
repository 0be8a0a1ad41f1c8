"""One self-contained Python file that shows one operator call go wrong, without nhwc: ready for a bug report."""

from nhwc.verification.reproduction.writer import Written, write_reproducer

__all__ = ["Written", "write_reproducer"]
