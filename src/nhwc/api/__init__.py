"""The public verbs, each in a file that joins the pieces behind it; this package only names them."""

from nhwc.api.auditing import AuditReport, audit, fake_mode, load_report, print_report, record, render
from nhwc.api.benching import BenchReport, bench, load_bench
from nhwc.api.examining import HealthReport, doctor
from nhwc.api.verifying import VerifyReport, load_verification, verify

__all__ = [
    "AuditReport",
    "BenchReport",
    "HealthReport",
    "VerifyReport",
    "audit",
    "bench",
    "doctor",
    "fake_mode",
    "load_bench",
    "load_report",
    "load_verification",
    "print_report",
    "record",
    "render",
    "verify",
]
