"""What can be chosen for a measurement depends on the device, and is told before any time is spent."""

from __future__ import annotations

import pytest
import torch

from nhwc.api import check_variants, every_variant
from nhwc.errors import RegistryError, VariantError

CPU = torch.device("cpu")


def with_flags(monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    monkeypatch.setattr("nhwc.variants.precision.instruction_flags", lambda: frozenset(flags))


def test_what_the_device_cannot_run_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with_flags(monkeypatch)
    specs, left_out = every_variant(CPU)
    assert not any("fp16" in spec.split("+") for spec in specs)
    assert left_out == ("variants with fp16 are left out: this processor has no float16 arithmetic",)


def test_what_the_device_can_run_is_there_in_both_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    with_flags(monkeypatch, "avx512_fp16")
    specs, left_out = every_variant(CPU)
    assert {"contiguous+fp16", "channels_last+fp16", "contiguous+compile", "channels_last+compile"} <= set(specs)
    assert left_out == ()
    assert "channels_last+kernels" in specs
    assert "contiguous+kernels" not in specs  # they serve channels-last operands only: nothing else to measure
    check_variants(specs, CPU)


def test_a_variant_that_was_named_and_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with_flags(monkeypatch)
    with pytest.raises(VariantError, match="fp16 cannot be had here: this processor has no float16 arithmetic"):
        check_variants(["contiguous", "channels_last+fp16"], CPU)
    with pytest.raises(RegistryError, match="there is no 'nchw'"):
        check_variants(["contiguous", "nchw"], CPU)
