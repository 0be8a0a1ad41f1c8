"""The public verbs, each in a file that joins the pieces behind it; this package only names them."""

from nhwc.api.auditing import AuditReport, audit, fake_mode, load_report, print_report, record, render

__all__ = ["AuditReport", "audit", "fake_mode", "load_report", "print_report", "record", "render"]
