"""Checks of torch's own settings on the CPU."""

from __future__ import annotations

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.settings import NOT_KNOWN
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "torch settings"
_PRECISION = "oneDNN fp32 precision of "
_FULL = ("none", "ieee", NOT_KNOWN)


@check(_SUBJECT, "oneDNN")
def onednn(machine: Snapshot) -> Answer:
    """Whether torch may call oneDNN at all."""
    if machine.build.onednn and machine.settings.get("oneDNN") == "False":
        advice = "set torch.backends.mkldnn.enabled = True: without it channels last has no fast convolution here"
        return Answer("disabled", State.WRONG, advice, "https://docs.pytorch.org/docs/stable/backends.html")
    return Answer("enabled" if machine.build.onednn else "not built in")


@check(_SUBJECT, "deterministic algorithms")
def deterministic(machine: Snapshot) -> Answer:
    """Reproducible kernels, which are slower."""
    if machine.settings.get("deterministic algorithms") == "True":
        source = "https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html"
        return Answer("on", State.BETTER, "torch.use_deterministic_algorithms(False) where speed is measured", source)
    return Answer("off")


@check(_SUBJECT, "float32 on the CPU")
def precision(machine: Snapshot) -> Answer:
    """What oneDNN computes float32 convolutions and matrix products in."""
    given = {
        name.removeprefix(_PRECISION): value for name, value in machine.settings.items() if name.startswith(_PRECISION)
    }
    value = ", ".join(f"{name} in {word}" for name, word in given.items() if word not in _FULL)
    if value:
        advice = "numbers are rounded before they are multiplied: verify that your model bears it"
        return Answer(value, State.BETTER, advice)
    return Answer("full precision")


@check(_SUBJECT, "denormals")
def denormals(machine: Snapshot) -> Answer:
    """Numbers near zero, which many processors compute slowly."""
    if machine.flushes_denormals:
        return Answer("flushed to zero")
    return Answer("kept; torch.set_flush_denormal(True) helps where activations decay towards zero")
