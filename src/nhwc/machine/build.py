"""How the installed torch was built, read from the text in which it describes itself (torch 2.11 to 2.14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from nhwc.machine.versions import onednn_version

_SETTING = re.compile(r"\b([A-Z_]+)=([^,\n]*)")


@dataclass(frozen=True)
class Build:
    """version: of torch. cuda, rocm: version built for, empty for neither. blas: "mkl", "open", ...; kind: "Release".

    onednn: version of oneDNN, empty where torch was built without it. backend: who runs torch's threads ("OpenMP").
    """

    version: str
    cuda: str
    rocm: str
    debug: bool
    kind: str
    blas: str
    onednn: str
    backend: str


def build() -> Build:
    """The build of the torch that is loaded."""
    return parse_build(
        torch.__config__.show(),
        torch.__config__.parallel_info(),
        version=str(torch.__version__),
        cuda=torch.version.cuda or "",
        rocm=torch.version.hip or "",
        debug=bool(torch.version.debug),
    )


def parse_build(config: str, parallel: str, *, version: str, cuda: str, rocm: str, debug: bool) -> Build:
    """A Build from ``torch.__config__.show()`` and ``torch.__config__.parallel_info()``."""
    settings = dict(_SETTING.findall(config))
    backend = re.search(r"ATen parallel backend: (.+)", parallel)
    kind = settings.get("BUILD_TYPE", "").strip()
    return Build(
        version,
        cuda,
        rocm,
        debug or kind == "Debug",
        kind,
        settings.get("BLAS_INFO", "").strip(),
        onednn_version(config),
        backend[1].strip() if backend else "",
    )
