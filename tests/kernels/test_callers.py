"""Who else may call an operator that a kernel replaces: graphs, batches of gradients, numbers, lazy negations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels.conformance import canonical
from torch.autograd.functional import jacobian
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

import nhwc

NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x * 2": lambda x: x * 2,
    "2 - x": lambda x: 2 - x,
    "1 / x": lambda x: 1 / x,
    "x + 0.5": lambda x: x + 0.5,
}
BATCHED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unfold": lambda x: F.unfold(x, 2),
    "fold of unfold": lambda x: F.fold(F.unfold(x, 2), (4, 4), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "shuffle by view": lambda x: x.view(1, 2, 4, 4, 4).transpose(1, 2).reshape(1, 8, 4, 4),
    "max_unpool": lambda x: F.max_unpool2d(x, torch.arange(16).view(1, 1, 4, 4).expand(1, 8, 4, 4) * 4, 2),
    "softmax": lambda x: x.softmax(1),
    "instance_norm": lambda x: F.instance_norm(x),
    "circular pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
}


@pytest.mark.parametrize("call", NUMBERS.values(), ids=NUMBERS)
def test_numbers_in_graphs(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(2, 3)
    traced = make_fx(call)(x)
    with nhwc.kernels.use():
        assert torch.equal(symbolic_trace(call)(x), call(x))
        assert torch.equal(traced(x), call(x))
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            assert torch.equal(torch.compile(call, backend=backend)(x), call(x))


@pytest.mark.parametrize("call", BATCHED.values(), ids=BATCHED)
def test_many_gradients_at_once(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = canonical(torch.randn(1, 8, 4, 4, dtype=torch.float64))
    expected = jacobian(call, x, vectorize=True)
    with nhwc.kernels.use():
        torch.testing.assert_close(jacobian(call, x, vectorize=True), expected)


def test_many_gradients_at_once_of_regions() -> None:
    ops = pytest.importorskip("torchvision.ops")
    x, box = canonical(torch.randn(1, 8, 6, 6, dtype=torch.float64)), torch.tensor([[0.0, 0, 0, 4, 4]]).double()
    for pool in (ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool):

        def call(x: torch.Tensor, pool: Callable[..., torch.Tensor] = pool) -> torch.Tensor:
            return pool(x, box, 2)

        expected = jacobian(call, x, vectorize=True)
        with nhwc.kernels.use():
            torch.testing.assert_close(jacobian(call, x, vectorize=True), expected)


@pytest.mark.parametrize("call", BATCHED.values(), ids=BATCHED)
def test_a_lazily_negated_image_keeps_its_sign(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch._neg_view(canonical(torch.randn(1, 8, 4, 4)))
    expected = call(x)
    with nhwc.kernels.use():
        torch.testing.assert_close(call(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("channels", [2, 3, 5, 7, 17])
def test_softmax_of_few_channels_and_a_short_last_block(channels: int, dtype: torch.dtype) -> None:
    x = canonical(torch.randn(1, channels, 7, 7, dtype=dtype)).requires_grad_()
    expected = torch.softmax(x.contiguous(), 1)
    with nhwc.kernels.use("softmax"):
        found = torch.softmax(x, 1)
        (gradient,) = torch.autograd.grad(found, x, canonical(torch.ones_like(found)))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-6, rtol=0)
