"""What is known to be bad: combinations of settings, hardware, versions and layouts, each with a page about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "known to be bad"


@dataclass(frozen=True)
class Combination:
    """What is bad together, when it is there, why with what to do, and a page about it."""

    name: str
    holds: Callable[[Snapshot], bool]
    state: State
    advice: str
    source: str


def _is_set(machine: Snapshot, *names: str) -> bool:
    return any(machine.environ.get(name, "") not in ("", "0", "none") for name in names)


COMBINATIONS = (
    Combination(
        "oneDNN prints every primitive",
        lambda machine: _is_set(machine, "ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE"),
        State.WRONG,
        "unset ONEDNN_VERBOSE: each line costs more than a small operator",
        "https://uxlfoundation.github.io/oneDNN/dev_guide_verbose.html",
    ),
    Combination(
        "two OpenMP runtimes in one process",
        lambda machine: len(machine.openmp) > 1,
        State.BETTER,
        "preload one of them, or leave out the package that brings the other: two pools share the cores",
        "https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",
    ),
    Combination(
        "synchronous launches on the GPU",
        lambda machine: machine.gpu is not None and _is_set(machine, "CUDA_LAUNCH_BLOCKING"),
        State.WRONG,
        "unset CUDA_LAUNCH_BLOCKING: every kernel is waited for",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    Combination(
        "GPU memory without a cache",
        lambda machine: machine.gpu is not None and _is_set(machine, "PYTORCH_NO_CUDA_MEMORY_CACHING"),
        State.WRONG,
        "unset PYTORCH_NO_CUDA_MEMORY_CACHING: every output is allocated by the driver",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    Combination(
        "TF32 forbidden by the environment",
        lambda machine: machine.gpu is not None and machine.environ.get("NVIDIA_TF32_OVERRIDE") == "0",
        State.BETTER,
        "unset NVIDIA_TF32_OVERRIDE=0: it overrules what torch is set to",
        "https://docs.nvidia.com/cuda/cublas/index.html",
    ),
    Combination(
        "a torch without kernels for this GPU",
        lambda machine: machine.gpu is not None and not _is_built_for(machine),
        State.WRONG,
        "install a torch that is built for this compute capability",
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.get_arch_list.html",
    ),
    Combination(
        "instance norm's gradient at batch 1",
        lambda machine: machine.instance_norm_errs,
        State.WRONG,
        "where it arrives in channels last the result is wrong, silently: run the step inside nhwc.kernels.use(), or "
        "bring the incoming gradient to contiguous",
        "https://github.com/pytorch/pytorch/issues/72341",  # why: it is a batch norm of a (1, N * C, ...) view
    ),
)


def _is_built_for(machine: Snapshot) -> bool:
    """Binary code runs on later minor versions of its own major one; intermediate code (compute_) on all later ones."""
    assert machine.gpu is not None
    major, minor = machine.gpu.capability
    if not machine.gpu.architectures:
        return True
    for name in machine.gpu.architectures:
        kind, _, digits = name.partition("_")
        digits = "".join(character for character in digits if character.isdigit())
        if len(digits) < 2:
            continue
        built = int(digits[:-1]), int(digits[-1])
        if (kind == "sm" and built[0] == major and built[1] <= minor) or (
            kind == "compute" and built <= (major, minor)
        ):
            return True
    return False


def _register(combination: Combination) -> None:
    @check(_SUBJECT, combination.name)
    def _holds(machine: Snapshot) -> Answer | None:
        if not combination.holds(machine):
            return None
        return Answer("yes", combination.state, combination.advice, combination.source)


for _combination in COMBINATIONS:
    _register(_combination)


@check(_SUBJECT, "in all")
def none(machine: Snapshot) -> Answer | None:
    """That none of the combinations holds; those that do speak for themselves."""
    if any(combination.holds(machine) for combination in COMBINATIONS):
        return None
    return Answer(f"none of {len(COMBINATIONS)}")
