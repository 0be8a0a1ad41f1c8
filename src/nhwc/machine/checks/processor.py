"""Checks of the processor: its instruction sets, those in use, and its arithmetic for small types."""

from __future__ import annotations

from nhwc.health import State
from nhwc.machine.checks.registry import Answer, check
from nhwc.machine.snapshot import Snapshot

_SUBJECT = "processor"
_ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_SHOWN = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile")
_SHOWN_ARM = ("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2")
#: What ATen asks of the processor before it uses a set: aten/src/ATen/native/DispatchStub.cpp of torch 2.11 to 2.14.
_ATEN = (
    ("AVX512", frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"})),
    ("AVX2", frozenset({"avx2", "fma"})),
)
_RANK = {"AVX512": 2, "AVX2": 1}


@check(_SUBJECT, "name")
def name(machine: Snapshot) -> Answer:
    """The processor and its instruction sets that matter here."""
    shown = [flag for flag in (*_SHOWN, *_SHOWN_ARM) if flag in machine.flags]
    return Answer(f"{machine.processor}{': ' if shown else ''}{' '.join(shown)}")


@check(_SUBJECT, "ATen uses")
def aten(machine: Snapshot) -> Answer:
    """The instruction set of torch's own kernels: pooling, normalisation, pointwise operators."""
    limit = machine.environ.get("ATEN_CPU_CAPABILITY")
    best = next((each for each, needed in _ATEN if needed <= machine.flags), None)
    if best is not None and _RANK.get(machine.capability, 0) < _RANK[best]:
        advice = (
            f"unset ATEN_CPU_CAPABILITY={limit}: the processor has {best}"
            if limit
            else f"the processor has {best}: install a torch from pytorch.org, which is built with it"
        )
        return Answer(machine.capability, State.WRONG, advice)
    if machine.capability in ("DEFAULT", "default", "NO AVX") and not machine.flags:
        return Answer(machine.capability, State.UNKNOWN, "see what the processor has: this system does not tell")
    return Answer(machine.capability)


@check(_SUBJECT, "oneDNN uses")
def onednn(machine: Snapshot) -> Answer | None:
    """The instruction set of convolutions and matrix products, from oneDNN itself."""
    if not machine.build.onednn:
        return None
    value = machine.onednn_isa or "not told"
    for variable in _ONEDNN_LIMITS:
        limit = machine.environ.get(variable, "")
        if limit.upper() not in ("", "ALL", "DEFAULT"):
            advice = f"unset {variable}={limit}: it forbids what the processor may have beyond it"
            return Answer(f"{value}, at most {limit}", State.WRONG, advice)
    if not machine.onednn_isa:
        return Answer(value, State.UNKNOWN, "run any convolution under ONEDNN_VERBOSE=1 and look for the isa in it")
    return Answer(value)


@check(_SUBJECT, "compiled kernels")
def compiled_kernels(machine: Snapshot) -> Answer | None:
    """The instruction set of nhwc's own kernels, or what is lost without their library."""
    found = machine.kernels
    if found is None:
        return None
    if found.instruction_set and not found.reason:
        return Answer(found.instruction_set)
    if found.instruction_set:
        return Answer(f"{found.instruction_set}: {found.reason}", State.BETTER, "install the torch that nhwc asks for")
    lost = "; ".join(f"{name}: {what}" for name, what in found.lost)
    value = f"none ({found.reason}). {lost}" if lost else f"none ({found.reason})"
    return Answer(
        value, State.BETTER, "install a C++ compiler, then install nhwc again; unset NHWC_NATIVE if it is set"
    )


@check(_SUBJECT, "bf16")
def bf16(machine: Snapshot) -> Answer:
    """Arithmetic in bfloat16, for autocast."""
    return _arithmetic(
        machine,
        ("amx_bf16", "avx512_bf16", "avx_ne_convert", "bf16"),
        "bfloat16",
        "keep float32: autocast converts and gains little",
    )


@check(_SUBJECT, "fp16")
def fp16(machine: Snapshot) -> Answer:
    """Arithmetic in float16; f16c alone only converts."""
    kept = "keep float32" if "f16c" not in machine.flags else "keep float32: f16c only converts"
    return _arithmetic(machine, ("amx_fp16", "avx512_fp16", "asimdhp"), "float16", kept)


@check(_SUBJECT, "int8")
def int8(machine: Snapshot) -> Answer:
    """Arithmetic in int8, for quantized models."""
    flags = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")
    return _arithmetic(machine, flags, "int8", "quantized models gain little here")


def _arithmetic(machine: Snapshot, flags: tuple[str, ...], dtype: str, advice: str) -> Answer:
    if not machine.flags:
        return Answer("not told", State.UNKNOWN, f"look up whether the processor computes in {dtype}")
    found = [flag for flag in flags if flag in machine.flags]
    return Answer(", ".join(found)) if found else Answer("not in this processor", State.BETTER, advice)
