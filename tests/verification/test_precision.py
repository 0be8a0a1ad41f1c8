"""Under autocast every operator is compared: the rounding of a coarse dtype would hide a fault end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from verification.planted import Around

import nhwc

pytestmark = pytest.mark.usefixtures("few_threads")
BF16 = ("channels_last+bf16",)


def test_an_operator_that_is_five_hundredths_off_in_bfloat16_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    (variant,) = nhwc.verify(Around("too_large"), torch.randn(2, 3, 8, 8), variants=BF16, reproducer=tmp_path).variants
    assert variant.divergence is not None, variant.reason
    assert variant.divergence.operator == "planted.too_large.default"
    assert variant.divergence.reproduces


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_net_passes_a_training_step_in_bfloat16(seed: int) -> None:
    torch.manual_seed(seed)
    blocks = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in [(3, 8), (8, 8), (8, 4)]
    ]
    model = nn.Sequential(*blocks, nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    report = nhwc.verify(model, torch.randn(4, 3, 16, 16), train=True, variants=BF16)
    assert report.passed, str(report)
