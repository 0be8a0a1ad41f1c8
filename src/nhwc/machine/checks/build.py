"""Checks of the torch build."""

from __future__ import annotations

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "torch build"


@check(_SUBJECT, "torch")
def torch_(machine: Snapshot) -> Answer:
    """The version, and what it was built for."""
    build = machine.build
    target = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.rocm}" if build.rocm else "the CPU alone"
    value = f"{build.version}, built for {target}"
    if build.debug:
        return Answer(f"{value}, a debug build", State.WRONG, "install a release build: this one is many times slower")
    if machine.has_driver and not build.cuda:
        return Answer(value, State.WRONG, "the machine has an NVIDIA driver: install a torch built for CUDA to use it")
    return Answer(value)


@check(_SUBJECT, "oneDNN")
def onednn(machine: Snapshot) -> Answer:
    """Whether convolutions on the CPU have a library that knows channels last."""
    if not machine.build.onednn:
        advice = "install a torch built with oneDNN: convolutions on the CPU run without a library that knows formats"
        return Answer("not built in", State.WRONG, advice)
    return Answer(machine.build.onednn)


@check(_SUBJECT, "BLAS")
def blas(machine: Snapshot) -> Answer:
    """The library behind matrix products."""
    name = {"mkl": "MKL", "open": "OpenBLAS", "accelerate": "Accelerate"}.get(machine.build.blas, machine.build.blas)
    if not name:
        return Answer("none that torch names", State.UNKNOWN, "compare linear layers with a torch from pytorch.org")
    return Answer(name)


@check(_SUBJECT, "threads by")
def backend(machine: Snapshot) -> Answer:
    """Who runs torch's threads."""
    if not machine.build.backend:
        return Answer("not told", State.UNKNOWN, "see torch.__config__.parallel_info()")
    if "OpenMP" not in machine.build.backend:
        advice = "install a torch built with OpenMP: oneDNN's convolutions run on threads of that kind"
        return Answer(machine.build.backend, State.BETTER, advice)
    runtimes = f" ({', '.join(machine.openmp)})" if machine.openmp else ""
    return Answer(f"{machine.build.backend}{runtimes}")
