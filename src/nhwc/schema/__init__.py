"""Versioned JSON of everything that is saved; each format opens with its name and version, and older files load."""

from nhwc.schema.bench import BENCH_VERSION, dump_bench, load_bench
from nhwc.schema.engine_report import ENGINE_REPORT_VERSION, dump_engine_report, load_engine_report
from nhwc.schema.ops import OPS_VERSION, dump_ops, load_ops
from nhwc.schema.optimization import OPTIMIZATION_VERSION, dump_optimization, load_optimization
from nhwc.schema.plan import PLAN_VERSION, dump_plan, load_plan
from nhwc.schema.report import VERSION, dump_report, dump_trace, load_report, load_trace
from nhwc.schema.verification import VERIFICATION_VERSION, dump_verification, load_verification

__all__ = [
    "BENCH_VERSION",
    "ENGINE_REPORT_VERSION",
    "OPS_VERSION",
    "OPTIMIZATION_VERSION",
    "PLAN_VERSION",
    "VERIFICATION_VERSION",
    "VERSION",
    "dump_bench",
    "dump_engine_report",
    "dump_ops",
    "dump_optimization",
    "dump_plan",
    "dump_report",
    "dump_trace",
    "dump_verification",
    "load_bench",
    "load_engine_report",
    "load_ops",
    "load_optimization",
    "load_plan",
    "load_report",
    "load_trace",
    "load_verification",
]
