"""torchvision's deform_conv2d: groups of both kinds, with and without a mask, every layout of its operands."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernels import conformance
from kernels.conformance import Sample, canonical

pytest.importorskip("torchvision", reason="it brings the operator")
from torchvision.ops import deform_conv2d

KERNEL = "deform_conv2d"
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@dataclass(frozen=True)
class Form:
    """A deformable convolution of (2, channels, 7, 6) images to 6 channels."""

    name: str
    channels: int = 12
    groups: int = 1
    offset_groups: int = 1
    masked: bool = True
    window: tuple[int, int] = (3, 2)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        high, wide = (
            (size + 2 * pad - spread * (extent - 1) - 1) // step + 1
            for size, extent, step, pad, spread in zip(
                (7, 6), self.window, self.stride, self.padding, self.dilation, strict=True
            )
        )
        values = self.offset_groups * self.window[0] * self.window[1]
        shapes = (
            (2, self.channels, 7, 6),
            (2, 2 * values, high, wide),
            (6, self.channels // self.groups, *self.window),
            (6,),
            (2, values, high, wide),
        )
        return shapes if self.masked else shapes[:4]

    def sample(self) -> Sample:
        def call(
            x: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *mask: torch.Tensor
        ) -> torch.Tensor:
            masked = mask[0] if mask else None
            return deform_conv2d(x, offset, weight, bias, self.stride, self.padding, self.dilation, masked)

        return Sample(self.name, call, self.shapes())


FORMS = [
    Form("plain", masked=False),
    Form("masked", channels=37),
    Form("groups", groups=3, stride=(2, 1)),
    Form("depthwise", channels=6, groups=6),
    Form("offset groups", offset_groups=4, dilation=(2, 1)),
    Form("both groups", channels=24, groups=2, offset_groups=3, padding=(2, 0)),
    Form("1x1", window=(1, 1), padding=(0, 0), stride=(3, 2)),
    Form("one channel", channels=1),
]
SAMPLES = [form.sample() for form in FORMS]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)


@dtypes
@every
def test_all_it_returns_is_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout(KERNEL, sample, dtype)


@dtypes
@every
def test_it_is_as_exact_as_torchvision(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy(KERNEL, sample, dtype)


@every
def test_nothing_is_copied(sample: Sample) -> None:
    conformance.check_no_copies(KERNEL, sample, torch.float32)


@every
def test_its_derivative_is_that_of_the_function(sample: Sample) -> None:
    conformance.check_derivatives(KERNEL, sample)


@every
def test_contiguous_input_takes_the_original(sample: Sample) -> None:
    conformance.check_steps_aside(KERNEL, sample, torch.float32)


@every
def test_operands_in_either_format_give_gradients_in_it(sample: Sample) -> None:
    """The image decides; a contiguous weight has a contiguous gradient, as an optimizer wants it."""
    image, offset, weight, *rest = (each.detach() for each in sample.operands(torch.float64))
    operands = [image, offset.contiguous(), weight.contiguous(), *(each.contiguous() for each in rest)]

    def gradients() -> tuple[torch.Tensor, ...]:
        leaves = [each.clone().requires_grad_() for each in operands]
        result = sample.call(*leaves)
        return (result.detach(), *torch.autograd.grad(result.square().sum(), leaves))

    wanted = gradients()
    with conformance.switched(KERNEL):
        found = gradients()
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(other, one)
    result, to_image, to_offset, to_weight, *_ = found
    assert conformance.is_canonical(result)
    assert conformance.is_canonical(to_image)
    assert conformance.is_canonical(to_offset)
    assert to_weight.is_contiguous()


def test_a_large_batch_is_done_in_parts() -> None:
    """More places than one chunk of columns has, cut in the middle of a picture."""
    shapes = (5, 40, 23, 29), (5, 18, 23, 29), (24, 40, 3, 3), (24,), (5, 9, 23, 29)
    large = Sample("large", lambda x, o, w, b, m: deform_conv2d(x, o, w, b, padding=(1, 1), mask=m), shapes)
    conformance.check_accuracy(KERNEL, large, torch.float32)
    conformance.check_layout(KERNEL, large, torch.float32)


@pytest.mark.parametrize("sample", SAMPLES[:3], ids=str)
def test_odd_layouts(sample: Sample) -> None:
    conformance.check_odd_layouts(KERNEL, sample)


def test_offsets_in_any_layout() -> None:
    image, offset, weight, bias, mask = (each.detach() for each in SAMPLES[1].operands(torch.float64))
    wide = canonical(torch.cat([offset, offset], 1))
    for name, odd in {
        "a slice": wide[:, : offset.shape[1]],
        "transposed": offset.transpose(2, 3).contiguous().transpose(2, 3),
        "expanded": offset[:, :1].expand(offset.shape),
        "of the batch": offset[:1].expand(offset.shape),
    }.items():
        conformance.compare_calls(
            KERNEL,
            lambda odd=odd: deform_conv2d(image, odd, weight, bias, (1, 1), (1, 1), (1, 1), mask),
            name,
        )


def test_offsets_to_the_very_edge_and_beyond_are_torchvisions() -> None:
    """Whole and half pixels from far before the image to far behind it, where the sides of a corner differ."""
    image = canonical(torch.randn(1, 16, 4, 4, dtype=torch.float64)).requires_grad_()
    weight = torch.randn(3, 16, 1, 1, dtype=torch.float64).requires_grad_()
    steps = torch.arange(-12, 13, dtype=torch.float64) / 2
    for y, x in torch.cartesian_prod(steps, steps)[::3].tolist():
        offset = torch.tensor([y, x], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 4, 4).clone().requires_grad_()
        mask = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64).requires_grad_()

        def step(offset: torch.Tensor = offset, mask: torch.Tensor = mask) -> tuple[torch.Tensor, ...]:
            result = deform_conv2d(image, offset, weight, mask=mask)
            return (result.detach(), *torch.autograd.grad(result.sum(), (image, offset, mask, weight)))

        conformance.compare_calls(KERNEL, step, f"{y} {x}")


def test_an_offset_that_is_no_number_gives_none_and_a_far_one_nothing() -> None:
    """torchvision reads memory out of bounds for the first."""
    offset, weight = torch.zeros(1, 2, 3, 3), torch.ones(1, 4, 1, 1)
    image = canonical(torch.ones(1, 4, 3, 3)).requires_grad_()
    offset[0, 0, 1, 2], offset[0, 1, 0, 0], offset[0, 0, 2, 2] = float("nan"), 1e30, torch.inf
    with conformance.switched(KERNEL):
        result = deform_conv2d(image, offset, weight)
        (gradient,) = torch.autograd.grad(result.sum(), image)
    wanted = torch.full((1, 1, 3, 3), 4.0)
    wanted[0, 0, 1, 2], wanted[0, 0, 0, 0], wanted[0, 0, 2, 2] = float("nan"), 0.0, 0.0
    assert torch.equal(result.isnan(), wanted.isnan())
    assert torch.equal(result.nan_to_num(), wanted.nan_to_num())
    assert torch.equal(gradient, (wanted == 4.0).float().expand(1, 4, 3, 3))


def test_a_value_that_is_no_number_outside_of_a_sample_is_not_read() -> None:
    image = canonical(torch.zeros(1, 4, 3, 3))
    image[0, :, 0, 0] = float("nan")
    offset = torch.full((1, 2, 3, 3), -0.5)
    weight = torch.ones(1, 4, 1, 1)
    conformance.compare_calls(KERNEL, lambda: deform_conv2d(image, offset, weight), "nan")


def test_empty_and_small_inputs() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        offset = torch.full((x.shape[0], 18, *x.shape[2:]), 0.25, dtype=x.dtype)
        return deform_conv2d(x, offset, torch.ones(2, x.shape[1], 3, 3, dtype=x.dtype), padding=(1, 1))

    conformance.check_shapes(KERNEL, call, [(2, 1, 4, 4), (2, 3, 4, 4), (2, 16, 1, 1), (1, 1, 1, 1), (0, 3, 4, 4)])


def test_bad_input_is_refused_in_torchvisions_words() -> None:
    image, offset, weight, bias, mask = (each.detach() for each in SAMPLES[1].operands(torch.float32))
    operator = torch.ops.torchvision.deform_conv2d
    numbers = (1, 1, 1, 1, 1, 1, 1, 1, True)
    for operands, rest in (
        ((image, weight, offset[:, :-1], mask, bias), numbers),
        ((image, weight, offset, mask[:, 1:], bias), numbers),
        ((image, weight[:, 1:], offset, mask, bias), numbers),
        ((image, weight, offset[:1], mask, bias), numbers),
        ((image, weight, offset, mask, bias[1:]), numbers),
        ((image, weight, offset, mask, bias), (1, 1, -1, *numbers[3:])),
        ((image.bfloat16(), weight, offset, mask, bias), numbers),
    ):
        conformance.check_error(KERNEL, lambda o=operands, r=rest: operator(*o, *r))


def test_a_second_derivative_is_refused_in_torchvisions_words() -> None:
    def step() -> torch.Tensor:
        image, *rest = SAMPLES[1].operands(torch.float64)
        (grad,) = torch.autograd.grad(SAMPLES[1].call(image, *rest).square().sum(), image, create_graph=True)
        return torch.autograd.grad(grad.sum(), image)[0]

    conformance.check_error(KERNEL, step)


def test_compiled_code_gets_the_strides_that_it_was_promised() -> None:
    image, *rest = SAMPLES[1].operands(torch.float32)

    def step(x: torch.Tensor) -> torch.Tensor:
        return SAMPLES[1].call(x, *rest).square().sum()

    (wanted,) = torch.autograd.grad(step(image), image)
    with conformance.switched(KERNEL):
        (found,) = torch.autograd.grad(torch.compile(step)(image), image)
    torch.testing.assert_close(found, wanted)
