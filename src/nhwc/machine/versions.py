"""Versions of everything that decides how fast or how right a step is."""

from __future__ import annotations

import platform
import re
from importlib import metadata

import torch

_ONEDNN = re.compile(r"(?:MKL-DNN|oneDNN) v([\d.]+)")
_PACKAGES = ("torchvision", "numpy", "nhwc")


def versions() -> tuple[tuple[str, str], ...]:
    """(name, version) of torch, what it was built with, Python and packages beside it; nothing for what is missing."""
    built_with = {
        "CUDA": torch.version.cuda or "",
        "cuDNN": cudnn_version(),
        "oneDNN": onednn_version(torch.__config__.show()),
    }
    installed = {package: installed_version(package) for package in _PACKAGES}
    found = {"torch": str(torch.__version__), **built_with, "python": platform.python_version(), **installed}
    return tuple((name, version) for name, version in found.items() if version)


def onednn_version(config: str) -> str:
    """The version of oneDNN in torch's description of its build; empty where it has none.

    >>> onednn_version("- Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71)")
    '3.12.0'
    """
    found = _ONEDNN.search(config)
    return found[1] if found else ""


def cudnn_version() -> str:
    """The version of cuDNN that is loaded, "9.24.0"; empty without a GPU. Asking loads the library."""
    if not torch.cuda.is_available():
        return ""
    number = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return "" if number is None else dotted(int(number))


def dotted(number: int) -> str:
    """cuDNN's number as people write it: five digits from version 9 on, four before.

    >>> dotted(92400), dotted(7605), dotted(8907)
    ('9.24.0', '7.6.5', '8.9.7')
    """
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def installed_version(package: str) -> str:
    """The version of an installed package, empty where it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
