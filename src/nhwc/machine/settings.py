"""Global settings of torch and of the environment that decide speed; reading them changes none.

The two interfaces to the precision of float32 (``allow_tf32``, ``fp32_precision``) were read from torch 2.11 to 2.14:
once both were written, the older one refuses to be read, so that the newer one is asked where it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

#: Beginnings of environment variables that decide how fast a step is.
_PREFIXES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDNN_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",
    "LRU_CACHE_CAPACITY",
    "MALLOC_",
    "MIMALLOC_",
    "MKL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TCMALLOC_",
    "THP_MEM_ALLOC_ENABLE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
NOT_KNOWN = "not known"


def environment_settings(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(name, value) of every environment variable set that decides speed, sorted by name."""
    return tuple(sorted((name, value) for name, value in environ.items() if name.startswith(_PREFIXES)))


def torch_settings(device: torch.device) -> tuple[tuple[str, str], ...]:
    """(name, value) of the settings of torch that decide the speed of a step on ``device``."""
    readers = _CUDA if device.type == "cuda" else _CPU
    return tuple((name, read(reader)) for name, reader in {**readers, **_BOTH}.items())


def read(reader: Callable[[], object]) -> str:
    """What a reader of a setting answers as text; "not known" where this torch lacks it or refuses to tell."""
    try:
        return str(reader())
    except (AttributeError, RuntimeError, AssertionError):
        return NOT_KNOWN


def _precision(library: object, operator: str) -> object:
    return getattr(library, operator).fp32_precision


def _matmul_tf32() -> object:
    return getattr(torch.backends.cuda.matmul, "fp32_precision", None) or torch.backends.cuda.matmul.allow_tf32


def _convolution_tf32() -> object:
    convolution = getattr(torch.backends.cudnn, "conv", None)
    return torch.backends.cudnn.allow_tf32 if convolution is None else convolution.fp32_precision


_BOTH: dict[str, Callable[[], object]] = {
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
}
_CPU: dict[str, Callable[[], object]] = {
    "ATen instruction set": torch.backends.cpu.get_cpu_capability,
    "oneDNN": lambda: torch.backends.mkldnn.enabled,
    "oneDNN deterministic": lambda: torch.backends.mkldnn.deterministic,
    "oneDNN fp32 precision of convolutions": lambda: _precision(torch.backends.mkldnn, "conv"),
    "oneDNN fp32 precision of matmul": lambda: _precision(torch.backends.mkldnn, "matmul"),
}
_CUDA: dict[str, Callable[[], object]] = {
    "cuDNN": lambda: torch.backends.cudnn.enabled,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "fp32 precision of convolutions": _convolution_tf32,
    "fp32 precision of matmul": _matmul_tf32,
}
