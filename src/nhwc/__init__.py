"""The channels-last memory format of PyTorch: see where a model loses it, what that costs, and who causes it.

Names load on first use, so that ``import nhwc`` loads neither torch nor any optional package; the pure ones
(``strides_for``, ``Layout``, ``Trace``, the errors) never need torch at all.

>>> import nhwc
>>> nhwc.strides_for((10, 3, 32, 32), "channels_last")
(3072, 1, 96, 3)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nhwc import data as data
    from nhwc import distributed as distributed
    from nhwc import kernels as kernels
    from nhwc import ops as ops
    from nhwc.api import (
        AuditReport,
        BenchReport,
        EngineReport,
        HealthReport,
        OptimizeReport,
        TrainReport,
        TrainSettings,
        VerifyReport,
        audit,
        bench,
        doctor,
        engine,
        load_bench,
        load_engine,
        load_engine_report,
        load_optimization,
        load_report,
        load_verification,
        optimization_of,
        optimize,
        record,
        restore,
        train,
        verify,
    )
    from nhwc.conversion import contiguous_state_dict, convert
    from nhwc.errors import (
        CheckpointError,
        ConversionError,
        DataError,
        DistributedError,
        EngineError,
        FormatError,
        ModelError,
        NhwcError,
        RecordingError,
        RegistryError,
        SchemaError,
        TargetError,
        TrainingError,
        UnreadableImageError,
        VariantError,
    )
    from nhwc.formats import layout_of, to_format
    from nhwc.model import Finding, Phase, Report, Severity, Trace
    from nhwc.strides import Layout, LayoutKind, strides_for

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
    "BenchReport",
    "CheckpointError",
    "ConversionError",
    "DataError",
    "DistributedError",
    "EngineError",
    "EngineReport",
    "Finding",
    "FormatError",
    "HealthReport",
    "Layout",
    "LayoutKind",
    "ModelError",
    "NhwcError",
    "OptimizeReport",
    "Phase",
    "RecordingError",
    "RegistryError",
    "Report",
    "SchemaError",
    "Severity",
    "TargetError",
    "Trace",
    "TrainReport",
    "TrainSettings",
    "TrainingError",
    "UnreadableImageError",
    "VariantError",
    "VerifyReport",
    "__version__",
    "audit",
    "bench",
    "contiguous_state_dict",
    "convert",
    "data",
    "distributed",
    "doctor",
    "engine",
    "kernels",
    "layout_of",
    "load_bench",
    "load_engine",
    "load_engine_report",
    "load_optimization",
    "load_report",
    "load_verification",
    "ops",
    "optimization_of",
    "optimize",
    "record",
    "restore",
    "strides_for",
    "to_format",
    "train",
    "verify",
]

_NAMES_IN = {
    "nhwc.api": (
        "AuditReport",
        "BenchReport",
        "EngineReport",
        "HealthReport",
        "OptimizeReport",
        "TrainReport",
        "TrainSettings",
        "VerifyReport",
        "audit",
        "bench",
        "doctor",
        "engine",
        "load_bench",
        "load_engine",
        "load_engine_report",
        "load_optimization",
        "load_report",
        "load_verification",
        "optimization_of",
        "optimize",
        "record",
        "restore",
        "train",
        "verify",
    ),
    "nhwc.conversion": ("contiguous_state_dict", "convert"),
    "nhwc.errors": (
        "CheckpointError",
        "ConversionError",
        "DistributedError",
        "DataError",
        "EngineError",
        "FormatError",
        "ModelError",
        "NhwcError",
        "RecordingError",
        "RegistryError",
        "SchemaError",
        "TargetError",
        "TrainingError",
        "UnreadableImageError",
        "VariantError",
    ),
    "nhwc.formats": ("layout_of", "to_format"),
    "nhwc.model": ("Finding", "Phase", "Report", "Severity", "Trace"),
    "nhwc.strides": ("Layout", "LayoutKind", "strides_for"),
}
_HOME_OF = {name: module for module, names in _NAMES_IN.items() for name in names}


#: Packages that are used by their own names: nhwc.kernels.use().
_NAMESPACES = frozenset({"data", "distributed", "kernels", "ops"})


def __getattr__(name: str) -> object:
    if name in _NAMESPACES:
        return import_module(f"nhwc.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'nhwc' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
