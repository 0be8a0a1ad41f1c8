"""The public verbs, each in a file that joins the pieces behind it; this package only names them."""

from nhwc.api.auditing import AuditReport, audit, fake_mode, load_report, print_report, record, render
from nhwc.api.benching import BenchReport, bench, load_bench
from nhwc.api.examining import HealthReport, doctor

__all__ = [
    "AuditReport",
    "BenchReport",
    "HealthReport",
    "audit",
    "bench",
    "doctor",
    "fake_mode",
    "load_bench",
    "load_report",
    "print_report",
    "record",
    "render",
]
