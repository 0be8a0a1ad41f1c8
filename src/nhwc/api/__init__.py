"""The public verbs, each in a file that joins the pieces behind it; this package only names them."""

from nhwc.api.auditing import AuditReport, audit, fake_mode, load_report, print_report, record, render
from nhwc.api.benching import BenchReport, bench, load_bench
from nhwc.api.choices import check_variants, every_variant
from nhwc.api.examining import HealthReport, doctor
from nhwc.api.optimizing import optimize
from nhwc.api.planning import check_plan, plan_formats
from nhwc.api.plans import FormatPlan, load_plan
from nhwc.api.remembering import OptimizeReport, load_optimization, optimization_of
from nhwc.api.restoring import restore
from nhwc.api.serving import EngineReport, engine, load_engine, load_engine_report
from nhwc.api.switching import kernels_on
from nhwc.api.training import train
from nhwc.api.verifying import VerifyReport, load_verification, verify
from nhwc.machine import conditions
from nhwc.training import JsonLog, TextLog, TrainReport, TrainSettings, naming

__all__ = [
    "AuditReport",
    "BenchReport",
    "EngineReport",
    "FormatPlan",
    "HealthReport",
    "JsonLog",
    "OptimizeReport",
    "TextLog",
    "TrainReport",
    "TrainSettings",
    "VerifyReport",
    "audit",
    "bench",
    "check_plan",
    "check_variants",
    "conditions",
    "doctor",
    "engine",
    "every_variant",
    "fake_mode",
    "kernels_on",
    "load_bench",
    "load_engine",
    "load_engine_report",
    "load_optimization",
    "load_plan",
    "load_report",
    "load_verification",
    "naming",
    "optimization_of",
    "optimize",
    "plan_formats",
    "print_report",
    "record",
    "render",
    "restore",
    "train",
    "verify",
]
