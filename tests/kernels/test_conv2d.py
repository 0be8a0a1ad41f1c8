"""2-D convolutions, 3x3 by Winograd's algorithm and 1x1 as products: torch's numbers, strides and errors, both ways."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample
from kernels.requirements import asked, keeps
from torch import nn

import nhwc
from nhwc.kernels import conv2d_products, conv2d_winograd, native

pytestmark = pytest.mark.skipif(not native.is_available(), reason="there is no compiled library")

CALLS = {
    "wide": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 40, 14, 19), (48, 40, 3, 3)),
    "narrow": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 35, 7, 5), (67, 35, 3, 3)),
    "not padded": (lambda x, w, b: F.conv2d(x, w, b), (3, 32, 15, 15), (33, 32, 3, 3)),
    "padded by two": (lambda x, w, b: F.conv2d(x, w, b, padding=2), (1, 32, 8, 9), (32, 32, 3, 3)),
    "without a bias": (lambda x, w, b: F.conv2d(x, w, padding=1) + b.view(1, -1, 1, 1), (2, 64, 9, 9), (32, 64, 3, 3)),
    "many weights": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (3, 320, 10, 9), (300, 320, 3, 3)),
    "padded by name": (lambda x, w, b: F.conv2d(x, w, b, padding="same"), (2, 32, 8, 8), (32, 32, 3, 3)),
}
POINTWISE = {
    "pixels": (F.conv2d, (2, 40, 9, 7), (48, 40, 1, 1)),
    "pixels of one picture": (F.conv2d, (1, 5, 3, 4), (7, 5, 1, 1)),
    "pixels without a bias": (lambda x, w, b: F.conv2d(x, w) + b.view(1, -1, 1, 1), (3, 3, 14, 14), (1, 3, 1, 1)),
    "more pixels, whose weight alone is ours": (F.conv2d, (6, 3, 27, 28), (4, 3, 1, 1)),
}


def samples(calls: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]]) -> list[Sample]:
    return [Sample(name, call, (image, weight, weight[:1])) for name, (call, image, weight) in calls.items()]


SAMPLES = samples(CALLS)


# not "no copies": torch's gradient of the weight, which stays, makes one
@keeps(asked("conv2d", [*SAMPLES, *samples(POINTWISE)], "channels last", "accuracy", "steps aside"))
def test_it_keeps_to(check: Callable[[], None]) -> None:
    check()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the weight was turned, for every run of the kernel."""
    found: list[bool] = []
    convolved = conv2d_winograd.convolved

    def counted(*operands: torch.Tensor, turned: bool) -> torch.Tensor | None:
        found.append(turned)
        return convolved(*operands, turned=turned)

    monkeypatch.setattr(conv2d_winograd, "convolved", counted)
    return found


def images(*shape: int) -> torch.Tensor:
    return conformance.canonical(torch.randn(shape))


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_samples_meet_the_kernel_both_ways(sample: Sample, runs: list[bool]) -> None:
    with nhwc.kernels.use("conv2d"):
        conformance.run(sample, sample.operands(torch.float32))
    assert runs == [False, True]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which products ran, in order."""
    found: list[str] = []
    for name in ("convolved", "by_input", "by_weight"):
        original = getattr(conv2d_products, name)

        def counted(*operands: Any, name: str = name, original: Any = original) -> torch.Tensor:
            found.append(name)
            result: torch.Tensor = original(*operands)
            return result

        monkeypatch.setattr(conv2d_products, name, counted)
    return found


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 40, 9, 7), ["convolved", "by_input", "by_weight"]),
        ((21, 3, 14, 14), ["by_input", "by_weight"]),
        ((1, 3, 28, 28), ["convolved", "by_weight"]),
        ((1, 3, 40, 40), ["convolved"]),
        ((3, 3, 40, 40), []),
    ],
)
def test_products_run_where_they_are_faster(
    shape: tuple[int, ...], wanted: list[str], products: list[str], runs: list[bool]
) -> None:
    x, weight = images(*shape).requires_grad_(), torch.randn(5, shape[1], 1, 1, requires_grad=True)
    with nhwc.kernels.use("conv2d"):
        F.conv2d(x, weight).square().sum().backward()
    assert products == wanted
    assert runs == []


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_products_of_gradients_that_are_wanted(wanted: tuple[bool, ...], products: list[str]) -> None:
    x, weight, bias = images(2, 6, 5, 5), torch.randn(4, 6, 1, 1), torch.randn(4)
    for each, asks in zip((x, weight, bias), wanted, strict=True):
        each.requires_grad_(asks)
    with nhwc.kernels.use("conv2d"):
        F.conv2d(x, weight, bias).square().sum().backward()
    assert products == ["convolved", *["by_input"] * wanted[0], *["by_weight"] * wanted[1]]
    assert tuple(each.grad is not None for each in (x, weight, bias)) == wanted


def test_the_gradient_of_a_weight_lies_in_both_formats() -> None:
    weight = torch.randn(4, 6, 1, 1, requires_grad=True)
    with nhwc.kernels.use("conv2d"):
        F.conv2d(images(2, 6, 5, 5), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.is_contiguous()
    assert weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_pixels_in_less_than_float32_are_torchs(products: list[str]) -> None:
    x, weight = images(2, 6, 5, 5), torch.randn(4, 6, 1, 1)
    torch.set_float32_matmul_precision("medium")
    try:
        with nhwc.kernels.use("conv2d"):
            F.conv2d(x, weight)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert products == []


OTHERS = {
    "pixels with a stride": lambda x: F.conv2d(x, torch.randn(32, 32, 1, 1), stride=2),
    "pixels with a border": lambda x: F.conv2d(x, torch.randn(32, 32, 1, 1), padding=1),
    "pixels in groups": lambda x: F.conv2d(x, torch.randn(32, 16, 1, 1), groups=2),
    "contiguous pixels": lambda x: F.conv2d(x.contiguous(), torch.randn(32, 32, 1, 1)),
    "pixels, transposed": lambda x: F.conv_transpose2d(x, torch.randn(32, 32, 1, 1)),
    "no pixels": lambda x: F.conv2d(x[:0], torch.randn(32, 32, 1, 1)),
    "few channels": lambda x: F.conv2d(x[:, :16].clone(memory_format=torch.channels_last), torch.randn(32, 16, 3, 3)),
    "stride": lambda x: F.conv2d(x, torch.randn(32, 32, 3, 3), stride=2),
    "dilation": lambda x: F.conv2d(x, torch.randn(32, 32, 3, 3), dilation=2),
    "groups": lambda x: F.conv2d(x, torch.randn(64, 16, 3, 3), groups=2),
    "other windows": lambda x: F.conv2d(x, torch.randn(32, 32, 1, 3)),
    "sides": lambda x: F.conv2d(x, torch.randn(32, 32, 3, 3), padding=(1, 0)),
    "transposed": lambda x: F.conv_transpose2d(x, torch.randn(32, 32, 3, 3)),
    "contiguous": lambda x: F.conv2d(x.contiguous(), torch.randn(32, 32, 3, 3)),
    "float64": lambda x: F.conv2d(x.double(), torch.randn(32, 32, 3, 3).double()),
    "no batch": lambda x: F.conv2d(x[0], torch.randn(32, 32, 3, 3)),
    "an empty batch": lambda x: F.conv2d(x[:0], torch.randn(32, 32, 3, 3)),
    "few pixels": lambda x: F.conv2d(images(1, 32, 7, 9), torch.randn(32, 32, 3, 3)),
    "many weights for so few pixels": lambda x: F.conv2d(images(1, 260, 9, 9), torch.randn(260, 260, 3, 3)),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_others_are_torchs(call: Callable[[torch.Tensor], torch.Tensor], runs: list[bool], products: list[str]) -> None:
    x = images(2, 32, 9, 9)
    torch.manual_seed(3)
    wanted = call(x)
    torch.manual_seed(3)
    with nhwc.kernels.use("conv2d"):
        found = call(x)
    assert runs == products == []
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.conv2d(x, torch.randn(32, 40, 3, 3)),
        lambda x: F.conv2d(x, torch.randn(32, 40, 1, 1)),
        lambda x: F.conv2d(x, torch.randn(32, 32, 1, 1), torch.randn(31)),
        lambda x: F.conv2d(x, torch.randn(32, 32, 1, 1).double()),
        lambda x: F.conv2d(x, torch.randn(32, 32, 3, 3), torch.randn(31)),
        lambda x: F.conv2d(x, torch.randn(32, 32, 3, 3).double()),
        lambda x: F.conv2d(x[:, :, :2].clone(memory_format=torch.channels_last), torch.randn(32, 32, 3, 3)),
    ],
)
def test_errors_are_torchs(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    conformance.check_error("conv2d", lambda: call(images(2, 32, 9, 9)))


@pytest.mark.parametrize("weight", [(True, False), (False, True), (False, False)], ids=["weight", "bias", "neither"])
def test_gradients_that_nobody_wants_are_not_made(weight: tuple[bool, bool], runs: list[bool]) -> None:
    layer = nn.Conv2d(32, 32, 3, padding=1)
    layer.weight.requires_grad, layer.bias.requires_grad = weight  # type: ignore[union-attr]
    x = images(2, 32, 9, 9).requires_grad_()
    with nhwc.kernels.use("conv2d"):
        layer(x).sum().backward()
    assert runs == [False, True]
    assert [each.grad is not None for each in (x, *layer.parameters())] == [True, *weight]


def test_a_picture_without_gradient_takes_none(runs: list[bool]) -> None:
    layer = nn.Conv2d(32, 32, 3, padding=1)
    with nhwc.kernels.use("conv2d"):
        layer(images(2, 32, 9, 9)).sum().backward()
    assert runs == [False]
    assert layer.weight.grad is not None


def test_second_derivatives_are_right() -> None:
    layer, x = nn.Conv2d(32, 32, 3, padding=1), images(1, 32, 9, 9)

    def penalty(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        (found,) = torch.autograd.grad(gradient.square().sum(), layer.weight)
        return found

    with nhwc.kernels.use("conv2d"):
        found = penalty(layer, x)
    exact = penalty(layer.double(), x.double())
    assert ((found - exact).abs().max() / exact.abs().max()).item() < 1e-5


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "sliced", "transposed"])
def test_weights_lie_as_they_like(layout: str, runs: list[bool]) -> None:
    weight = torch.randn(40, 32, 3, 3)
    exact_weight = weight.double().requires_grad_()
    lying = (
        {
            "contiguous": weight,
            "channels last": conformance.canonical(weight),
            "sliced": torch.cat([weight, weight], 1)[:, :32],
            "transposed": weight.transpose(2, 3).contiguous().transpose(2, 3),
        }[layout]
        .detach()
        .requires_grad_()
    )
    x = images(2, 32, 9, 9).requires_grad_()
    with nhwc.kernels.use("conv2d"):
        F.conv2d(x, lying, padding=1).square().sum().backward()
    y = x.detach().double().requires_grad_()
    F.conv2d(y, exact_weight, padding=1).square().sum().backward()
    assert runs == [False, True]
    for found, exact in ((x.grad, y.grad), (lying.grad, exact_weight.grad)):
        assert found is not None
        assert exact is not None
        assert ((found - exact).abs().max() / exact.abs().max()).item() < 1e-5


def test_threads_have_memory_of_their_own(few_threads: None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x, weights = images(2, 32, 20, 20), [torch.randn(32 + 8 * i, 32, 3, 3) for i in range(4)]
    wanted = [F.conv2d(x, weight, padding=1) for weight in weights]
    with nhwc.kernels.use("conv2d"), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: F.conv2d(x, weights[i % 4], padding=1), range(80)))
    for i, each in enumerate(found):
        torch.testing.assert_close(each, wanted[i % 4], rtol=1e-4, atol=1e-4)


def test_memory_beyond_the_limit_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv2d_winograd, "_MOST_FLOATS", 100)
    x, weight = images(2, 32, 9, 9).requires_grad_(), torch.randn(32, 32, 3, 3)
    with nhwc.kernels.use("conv2d"):
        found = F.conv2d(x, weight)
        found.sum().backward()
    assert torch.equal(found, F.conv2d(x, weight))
    assert x.grad is not None


def test_any_number_of_threads_gives_the_same_bits(few_threads: None) -> None:
    x, weight = images(2, 64, 13, 13), torch.randn(64, 64, 3, 3)
    with nhwc.kernels.use("conv2d"):
        wanted = F.conv2d(x, weight, padding=1)
        for threads in (2, 5):
            torch.set_num_threads(threads)
            assert torch.equal(F.conv2d(x, weight, padding=1), wanted)


@pytest.mark.parametrize("seed", range(24))
def test_random_sizes(seed: int, few_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(draw.choice([1, 2, 5]))
    # no more than it asks for, so that guard pages and sanitizers see where it ends
    monkeypatch.setattr(conv2d_winograd, "_MEMORY", conv2d_winograd._Memory())
    padding, turned = draw.randint(0, 2), draw.random() < 0.5
    channels, columns = draw.choice([(draw.randint(1, 67), draw.randint(1, 67)), (270, 230)])
    size = [draw.randint(max(1, 3 - 2 * padding), 33) for _ in range(2)]
    image = images(draw.randint(1, 3), channels, *size)
    weight = torch.randn(channels, columns, 3, 3) if turned else torch.randn(columns, channels, 3, 3)
    weight = conformance.canonical(weight) if draw.random() < 0.5 else weight
    bias = torch.randn(columns) if draw.random() < 0.5 else None
    found = conv2d_winograd.convolved(image, weight, bias, padding, turned=turned)
    read = weight.transpose(0, 1).flip(2, 3) if turned else weight
    exact = F.conv2d(image.double(), read.double(), None if bias is None else bias.double(), padding=padding)
    assert found is not None
    assert found.shape == exact.shape
    assert ((found - exact).abs().max() / exact.abs().max()).item() < 1e-5
