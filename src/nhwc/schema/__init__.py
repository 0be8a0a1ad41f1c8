"""Versioned JSON of everything that is saved; each format opens with its name and version, and older files load."""

from nhwc.schema.report import VERSION, dump_report, dump_trace, load_report, load_trace

__all__ = ["VERSION", "dump_report", "dump_trace", "load_report", "load_trace"]
