"""interpolate in every mode, 2-D and 3-D, forward and backward, against torch's own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample
from torch.autograd import gradcheck, gradgradcheck

import nhwc
from nhwc.kernels import native

KERNEL = "interpolate"
IMAGES = {"image": (2, 6, 7, 5), "narrow": (2, 3, 6, 9), "wide": (1, 70, 4, 6), "long": (1, 2, 300, 3)}
VOLUMES = {"volume": (2, 6, 4, 5, 3), "narrow volume": (1, 3, 6, 4, 5)}
SIZES: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2},
    "larger": {"size": (9, 13)},
    "smaller": {"size": (3, 4)},
    "one pixel": {"size": (1, 1)},
    "larger one way": {"scale_factor": (1.7, 0.6)},
    "of its height": {"scale_factor": (1.05, 1.7)},
    "of its size": {"scale_factor": 1.01},
}
PLAIN = {"nearest", "nearest-exact", "bilinear"}
MODES = ("nearest", "nearest-exact", "bilinear", "bicubic")
SMOOTH = ("bilinear", "bicubic", *(["lanczos"] if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa") else []))


def sample(how: str, shape: tuple[int, ...], options: dict[str, Any], label: str) -> Sample:
    given = dict(options)
    if len(shape) == 5:
        given = {name: (2, *value) if isinstance(value, tuple) else value for name, value in given.items()}
    if how.startswith("antialiased"):
        given["antialias"] = True
    given["mode"] = how.removeprefix("antialiased ")
    return Sample(f"{how}, {label}", lambda x: F.interpolate(x, **given), (shape,))


SAMPLES = [
    sample(how, shape, options, f"{size}, {label}")
    for how, (size, options), (label, shape) in itertools.product(
        (*MODES, *(f"antialiased {each}" for each in SMOOTH)), SIZES.items(), IMAGES.items()
    )
    if (label != "long" or size in {"twice", "smaller"}) and (how in PLAIN or not size.startswith("of its"))
]
SAMPLES += [
    sample(how, shape, options, f"{size}, {label}")
    for how, (size, options), (label, shape) in itertools.product(
        ("nearest", "nearest-exact", "trilinear"), SIZES.items(), VOLUMES.items()
    )
    # torch's nearest answers otherwise in channels last than in contiguous there
    if how != "nearest" or not size.startswith("of its")
]
SAMPLES += [
    sample(how, shape, {**SIZES[size], "align_corners": True}, f"{size}, corners, {rank}")
    for how, rank, shape in (
        ("bilinear", "2-D", IMAGES["image"]),
        ("bicubic", "2-D", IMAGES["image"]),
        ("antialiased bilinear", "2-D", IMAGES["image"]),
        ("antialiased bicubic", "2-D", IMAGES["image"]),
        ("trilinear", "3-D", VOLUMES["volume"]),
    )
    for size in ("larger", "smaller", "one pixel")
]
HALVES = {torch.bfloat16, torch.float16}


def _in(*dtypes: torch.dtype) -> pytest.MarkDecorator:
    """Every sample in each dtype; torch antialiases in float32 and float64 only."""
    return pytest.mark.parametrize(
        ("sample", "dtype"),
        [
            pytest.param(each, dtype, id=f"{each}, {dtype}")
            for each, dtype in itertools.product(SAMPLES, dtypes)
            if not (dtype in HALVES and "antialiased" in each.name)
        ],
    )


FEW = [each for each in SAMPLES if "image" in each.name or each.name.endswith((", volume", "D"))]
few = pytest.mark.parametrize("sample", FEW, ids=str)


@_in(*conformance.DTYPES)
def test_everything_is_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout(KERNEL, sample, dtype)


@few
def test_nothing_is_copied(sample: Sample) -> None:
    conformance.check_no_copies(KERNEL, sample, torch.float32)


@_in(torch.float32, torch.float64, torch.bfloat16, torch.float16)
def test_errors_are_at_most_twice_the_originals(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(KERNEL, sample, dtype)


@few
def test_gradients_are_derivatives(sample: Sample) -> None:
    conformance.check_derivatives(KERNEL, sample)


@few
def test_contiguous_operands_take_the_original(sample: Sample) -> None:
    conformance.check_steps_aside(KERNEL, sample, torch.float32)


@few
def test_odd_layouts_answer_alike(sample: Sample) -> None:
    conformance.check_odd_layouts(KERNEL, sample)


def test_odd_shapes_answer_alike() -> None:
    images = [(2, 1, 4, 4), (2, 3, 1, 1), (0, 3, 4, 4), (2, 0, 4, 4), (1, 1, 1, 1), (2, 3, 0, 4)]
    for mode, size in itertools.product(MODES, (1, 3, (0, 2))):
        conformance.check_shapes(KERNEL, lambda x, mode=mode, size=size: F.interpolate(x, size, mode=mode), images)
    volumes = [(*shape, 4) for shape in images]
    for mode in ("nearest", "trilinear"):
        conformance.check_shapes(KERNEL, lambda x, mode=mode: F.interpolate(x, 3, mode=mode), volumes)


@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 3, 1, 1), (1, 5, 1, 3)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_ambiguous_gradients_become_channels_last(mode: str, shape: tuple[int, ...]) -> None:
    conformance.check_layout(KERNEL, Sample("", lambda x: F.interpolate(x, (3, 2), mode=mode), (shape,)), torch.float32)


@pytest.mark.parametrize("size", ["of its size", "of its height"])
@pytest.mark.parametrize("how", ["bicubic", *(f"antialiased {each}" for each in SMOOTH)])
def test_scales_that_change_no_size_are_torchs_to_read(how: str, size: str) -> None:
    conformance.check_accuracy(KERNEL, sample(how, IMAGES["image"], SIZES[size], size), torch.float32)


@pytest.mark.parametrize("how", SMOOTH)
@pytest.mark.parametrize("shape", [(2, 3, 5, 1), (2, 3, 1, 5)], ids=str)
def test_one_pixel_that_stays_one_is_torchs_to_antialias(how: str, shape: tuple[int, ...]) -> None:
    sizes = [size if size == 1 else 7 for size in shape[2:]]
    image = conformance.canonical(torch.randn(shape))
    conformance.compare_calls(KERNEL, lambda: F.interpolate(image, sizes, mode=how, antialias=True), "one pixel")


@pytest.mark.parametrize("how", SMOOTH)
def test_antialiasing_refuses_16_bit_types_in_the_originals_words(how: str) -> None:
    image = conformance.canonical(torch.randn(2, 3, 4, 4, dtype=torch.bfloat16))
    conformance.check_error(KERNEL, lambda: F.interpolate(image, 3, mode=how, antialias=True))


def test_a_wrong_gradient_is_refused_in_the_originals_words() -> None:
    wrong = conformance.canonical(torch.randn(2, 3, 8, 7))
    backward = torch.ops.aten.upsample_bicubic2d_backward
    conformance.check_error(KERNEL, lambda: backward(wrong, [8, 8], [2, 3, 4, 4], False, None, None))
    conformance.check_error(KERNEL, lambda: backward(wrong, [8, 7], [2, 3, 4], False, None, None))
    conformance.check_error(KERNEL, lambda: backward(wrong, [8, 7], [2, 3, 4, 0], False, None, None))


def test_gradients_in_contiguous_can_be_differentiated_again() -> None:
    image = conformance.canonical(torch.randn(1, 2, 3, 4, dtype=torch.float64)).requires_grad_()
    grad = torch.randn(1, 2, 6, 8, dtype=torch.float64, requires_grad=True)
    with nhwc.kernels.use(KERNEL):
        for mode in MODES:
            assert gradgradcheck(lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), image, grad)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own rules for forward gradients use it
def test_many_gradients_at_once_and_forward_ones_are_torchs() -> None:
    image = conformance.canonical(torch.randn(1, 2, 3, 2, dtype=torch.float64)).requires_grad_()
    with nhwc.kernels.use(KERNEL):
        for mode in ("bilinear", "bicubic"):

            def call(x: torch.Tensor, mode: str = mode) -> torch.Tensor:
                return F.interpolate(x, (4, 3), mode=mode)

            assert gradcheck(call, image, check_forward_ad=True, check_batched_grad=True)
            rows = torch.autograd.functional.jacobian(call, image, vectorize=True)
            torch.testing.assert_close(rows, torch.autograd.functional.jacobian(call, image))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_a_gradient_that_is_some_channels_of_a_wider_one_comes_back_in_channels_last(mode: str) -> None:
    pixels, beside = torch.randn(2, 5, 1, 1), torch.randn(2, 3, 6, 7)
    grad = torch.randn(2, 8, 6, 7)

    def gradient(of: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
        of = of.detach().requires_grad_()
        joined = torch.cat([F.interpolate(of, (6, 7), mode=mode), beside], 1)
        (found,) = torch.autograd.grad(joined, of, incoming)
        return found

    with nhwc.kernels.use(KERNEL, "slice_backward"):
        found = gradient(pixels, conformance.canonical(grad))
    torch.testing.assert_close(found, gradient(pixels, grad))
    assert found.stride() == conformance.canonical(pixels).stride()


def test_nothing_hooks_a_call_without_gradients() -> None:
    image = conformance.canonical(torch.randn(1, 2, 3, 2)).requires_grad_()
    with nhwc.kernels.use(KERNEL), torch.no_grad():
        assert not F.interpolate(image, 4, mode="bicubic").requires_grad


def test_infinite_values_stay_where_their_weight_is() -> None:
    image = torch.randn(1, 2, 4, 6)
    image[0, 1, 1, 2] = torch.inf
    wanted = F.interpolate(image, (9, 7), mode="bicubic")
    with nhwc.kernels.use(KERNEL):
        found = F.interpolate(conformance.canonical(image), (9, 7), mode="bicubic")
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_tables_made_in_inference_mode_serve_training() -> None:
    image = conformance.canonical(torch.randn(1, 5, 11, 17))
    with nhwc.kernels.use(KERNEL):
        with torch.inference_mode():
            F.interpolate(image, (19, 23), mode="bicubic")
        (grad,) = torch.autograd.grad(F.interpolate(image.requires_grad_(), (19, 23), mode="bicubic").sum(), image)
    (wanted,) = torch.autograd.grad(F.interpolate(image, (19, 23), mode="bicubic").sum(), image)
    torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("sample", FEW[:12], ids=str)
def test_without_the_library_torch_runs(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    conformance.check_accuracy(KERNEL, sample, torch.float32)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    image = conformance.canonical(torch.randn(2, 40, 48, 40)).requires_grad_()
    grad = conformance.canonical(torch.randn(2, 40, 100, 90))
    before = torch.get_num_threads()
    results = []
    with nhwc.kernels.use(KERNEL):
        for threads in (1, before + 1):
            torch.set_num_threads(threads)
            output = F.interpolate(image, (100, 90), mode="bicubic")
            results.append((output, *torch.autograd.grad(output, image, grad)))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *results))
