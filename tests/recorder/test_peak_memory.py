"""The most bytes that a step holds at once."""

import pytest
import torch

from nhwc.recorder.memory import peak_bytes

CPU = torch.device("cpu")
MEGABYTE = 1 << 20


def test_it_is_the_fullest_moment_above_what_was_there(capfd: pytest.CaptureFixture[str]) -> None:
    held = torch.empty(8 * MEGABYTE, dtype=torch.uint8)

    def step() -> torch.Tensor:
        first = torch.empty(4 * MEGABYTE, dtype=torch.uint8)
        second = torch.empty(2 * MEGABYTE, dtype=torch.uint8)
        del first
        third = torch.empty(MEGABYTE, dtype=torch.uint8)
        return held[:1] + second[:1] + third[:1]

    peak = peak_bytes(step, CPU)
    assert peak is not None
    assert 6 * MEGABYTE <= peak < 6 * MEGABYTE + 4096
    assert capfd.readouterr().err == ""


def test_training_holds_more_than_inference() -> None:
    model = torch.nn.Sequential(*[torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)])
    images = torch.randn(2, 8, 32, 32)

    def forward() -> None:
        with torch.no_grad():
            model(images)

    inference, training = peak_bytes(forward, CPU), peak_bytes(lambda: model(images).sum().backward(), CPU)
    assert inference is not None
    assert training is not None
    assert training > 2 * inference


def test_a_block_that_is_older_than_the_profile_is_released_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    held = [torch.empty(MEGABYTE, dtype=torch.uint8)]
    assert peak_bytes(held.clear, CPU) == 0
    assert capfd.readouterr().err == ""


def test_another_profiler_or_an_unknown_device_leaves_it_unknown() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert peak_bytes(lambda: None, CPU) is None
    assert peak_bytes(lambda: None, torch.device("meta")) is None


def test_an_exception_passes_and_stops_the_profiler() -> None:
    with pytest.raises(ZeroDivisionError):
        peak_bytes(lambda: 1 // 0, CPU)
    assert not torch._C._autograd._profiler_enabled()
