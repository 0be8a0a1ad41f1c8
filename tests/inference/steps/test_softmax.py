"""Softmax over rows against torch in float64: every length, slices, in place, NaN and infinities."""

from __future__ import annotations

import pytest
import torch
from inference.running import by_every_candidate, relative_error, request, run_step

import nhwc.inference.steps.softmax  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import Fused, Softmax
from nhwc.inference.steps.registry import candidates

BOTH = {False: torch.softmax, True: torch.log_softmax}


def of_rows(x: torch.Tensor, output: torch.Tensor, log: bool, threads: int = 2) -> torch.Tensor:
    return by_every_candidate(request(Softmax(log), (x,), output, threads=threads), output)["softmax"]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("log", BOTH)
@pytest.mark.parametrize("c", [1, 2, 15, 16, 17, 33, 67, 1000])
def test_rows_of_every_length(c: int, log: bool, threads: int) -> None:
    for shape in ((9, c), (2, 3, 5, c), (2, 2, 3, 4, c)):
        wide = torch.randn(*shape[:-1], c + 4) * 10
        x, memory = wide[..., 1 : 1 + c], torch.zeros(*shape[:-1], c + 5)
        exact = BOTH[log](x.double(), -1)
        found = of_rows(x, memory[..., 2 : 2 + c], log, threads)
        assert relative_error(found, exact) < 5e-7
        memory[..., 2 : 2 + c] = 0
        assert not memory.any()


@pytest.mark.parametrize("log", BOTH)
def test_channels_of_pixels_and_in_place(log: bool) -> None:
    x = torch.randn(2, 21, 7, 5).contiguous(memory_format=torch.channels_last)
    exact = BOTH[log](x.double(), 1)
    assert relative_error(of_rows(x, torch.empty_like(x), log), exact) < 5e-7
    [candidate] = candidates(request(Softmax(log), (x,), x))
    run_step(candidate.build())
    assert relative_error(x, exact) < 5e-7
    one = torch.randn(24).as_strided((2, 1, 3, 4), (12, 1, 4, 1))
    assert torch.equal(of_rows(one, torch.zeros(24).as_strided(one.shape, one.stride()), log), BOTH[log](one, 1))


@pytest.mark.parametrize("log", BOTH)
def test_nan_and_infinities_as_torch_has_them(log: bool) -> None:
    x = torch.randn(6, 37)
    x[0, 3], x[1, 36], x[2, 0], x[3] = torch.nan, torch.inf, -torch.inf, -torch.inf
    x[4, 1:] = -torch.inf
    x[5] *= 1e30
    found = of_rows(x, torch.empty_like(x), log)
    assert torch.allclose(found, BOTH[log](x, -1), equal_nan=True, rtol=1e-6, atol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    x = torch.randn(3, 4)
    assert not candidates(request(Softmax(), (x,), torch.empty(4, 3).t()))
    assert not candidates(request(Softmax(), (x,), torch.empty(3, 5)))
    assert not candidates(request(Softmax(), (x,), torch.empty(3, 4), Fused(Activation.CLAMP)))
    assert of_rows(torch.empty(0, 4), torch.empty(0, 4), log=False).shape == (0, 4)
