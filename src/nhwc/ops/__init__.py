"""The operator table of the installed torch: which operators keep channels last, in which dtype, and at what speed.

>>> import nhwc.ops
>>> sorted(nhwc.ops.__all__)
['OpsReport', 'changes', 'load', 'survey']

This namespace stands above all others, as ``nhwc`` does: ``survey`` joins what the files here find with what
``nhwc.measure`` times and ``nhwc.recorder`` sees. The files here know nothing of either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nhwc.api.surveying import OpsReport, changes, load, survey

__all__ = ["OpsReport", "changes", "load", "survey"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nhwc.ops' has no attribute {name!r}")
    value: object = getattr(import_module("nhwc.api.surveying"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
