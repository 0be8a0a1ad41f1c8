"""Checks of the GPU, where there is one."""

from __future__ import annotations

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.gpu import Gpu
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "GPU"
_TUTORIAL = "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"
_CONVOLUTIONS = "https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html"
_OLDEST_CUDNN = (7, 6)
_TENSOR_CORES, _BF16 = (7, 0), (8, 0)


@check(_SUBJECT, "name")
def name(machine: Snapshot) -> Answer:
    """The GPU, or that there is none."""
    found = machine.gpu
    if found is None:
        return Answer("none")
    return Answer(f"{found.name}, compute capability {_dotted(found)}, {found.memory_bytes / 2**30:.0f} GiB")


@check(_SUBJECT, "cuDNN")
def cudnn(machine: Snapshot) -> Answer | None:
    """The library behind convolutions; channels last needs 7.6."""
    if machine.gpu is None:
        return None
    version = machine.gpu.cudnn
    if not version:
        return Answer("not found", State.WRONG, "install a torch with cuDNN: channels last needs it", _TUTORIAL)
    if machine.settings.get("cuDNN") == "False":
        return Answer(f"{version}, disabled", State.WRONG, "set torch.backends.cudnn.enabled = True", _TUTORIAL)
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_CUDNN:
        return Answer(version, State.WRONG, "update to cuDNN 7.6 or newer: older ones know no channels last", _TUTORIAL)
    return Answer(version)


@check(_SUBJECT, "fp16")
def fp16(machine: Snapshot) -> Answer | None:
    """Tensor cores, which want channels last."""
    if machine.gpu is None:
        return None
    if machine.gpu.capability < _TENSOR_CORES:
        advice = "expect little: without tensor cores mixed precision in channels last has no faster kernels"
        return Answer("no tensor cores", State.BETTER, advice, _CONVOLUTIONS)
    return Answer("on tensor cores")


@check(_SUBJECT, "bf16")
def bf16(machine: Snapshot) -> Answer | None:
    """Arithmetic in bfloat16."""
    if machine.gpu is None:
        return None
    if machine.gpu.capability < _BF16:
        return Answer("not in this GPU", State.BETTER, "autocast to float16 instead: bfloat16 is emulated here")
    return Answer("on tensor cores")


@check(_SUBJECT, "TF32 in convolutions")
def convolutions(machine: Snapshot) -> Answer | None:
    """Whether float32 convolutions may use tensor cores."""
    return _tf32(machine, "fp32 precision of convolutions", "torch.backends.cudnn.allow_tf32 = True")


@check(_SUBJECT, "TF32 in matrix products")
def products(machine: Snapshot) -> Answer | None:
    """Whether float32 matrix products may use tensor cores."""
    return _tf32(machine, "fp32 precision of matmul", 'torch.set_float32_matmul_precision("high")')


def _tf32(machine: Snapshot, setting: str, how: str) -> Answer | None:
    if machine.gpu is None or machine.gpu.capability < _BF16:
        return None
    value = machine.settings.get(setting, "")
    if value in ("tf32", "True"):
        return Answer("on")
    if value in ("none", "ieee", "False"):
        return Answer("off", State.BETTER, f"{how}, where float32 may be rounded to 10 bits of mantissa")
    return Answer(value or "not told", State.UNKNOWN, "set it through one of torch's two interfaces, not through both")


@check(_SUBJECT, "cudnn.benchmark")
def benchmark(machine: Snapshot) -> Answer | None:
    """Whether cuDNN tries its kernels for each shape."""
    if machine.gpu is None:
        return None
    if machine.settings.get("cudnn.benchmark") != "True":
        return Answer("off", State.BETTER, "set torch.backends.cudnn.benchmark = True where shapes repeat")
    return Answer("on")


@check(_SUBJECT, "cudnn.deterministic")
def deterministic(machine: Snapshot) -> Answer | None:
    """Whether cuDNN leaves its faster, not reproducible kernels out."""
    if machine.gpu is None:
        return None
    if machine.settings.get("cudnn.deterministic") == "True":
        return Answer("on", State.BETTER, "set torch.backends.cudnn.deterministic = False where speed is measured")
    return Answer("off")


@check(_SUBJECT, "allocator")
def allocator(machine: Snapshot) -> Answer | None:
    """Torch's allocator on the GPU, and whether its segments can grow."""
    if machine.gpu is None:
        return None
    asked = (machine.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    grows = any("expandable_segments:true" in text.lower() for text in asked)
    name = "CUDA caching allocator" if machine.gpu.allocator == "native" else machine.gpu.allocator
    return Answer(f"{name}, {'expandable' if grows else 'fixed'} segments")


@check(_SUBJECT, "nhwc's kernels")
def kernels(machine: Snapshot) -> Answer | None:
    """Those in Triton, or what is lost without it."""
    found = machine.gpu_kernels
    if machine.gpu is None or found is None:
        return None
    names = ", ".join(found.names)
    if found.has_triton:
        return Answer(f"in Triton: {names}")
    return Answer(f"no Triton: torch's own run for {names}", State.BETTER, "install triton, as torch for Linux does")


def _dotted(gpu: Gpu) -> str:
    return ".".join(str(part) for part in gpu.capability)
