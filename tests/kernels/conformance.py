"""What every kernel must keep to: its result against torch's own, the layout of all it returns, and no copy on the way.

A test file lists samples of its kernel; each function here is one requirement on one sample. The original is the same
call without the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import nhwc
from nhwc.strides import channels_last_for, strides_for

COPIES = {"clone", "contiguous", "copy_", "_to_copy"}


@dataclass(frozen=True)
class Sample:
    """One call: ``call(*tensors)`` on tensors of these shapes; 4-D and 5-D ones are channels last.

    call: returns a tensor or a tuple of tensors; only floating-point results of at least 4-D are judged by layout.
    constants: how many of the last operands take no gradient (indices, running statistics): their makers by position
        in ``make``. make: operands that are not drawn from a normal distribution, by position.
    """

    name: str
    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    make: dict[int, Callable[[torch.Generator], torch.Tensor]] | None = None
    differentiable: bool = True

    def __str__(self) -> str:
        return self.name

    def operands(self, dtype: torch.dtype, seed: int = 0, channels_last: bool = True) -> list[torch.Tensor]:
        """Fresh operands, the same values for every dtype up to rounding; those drawn at random require gradients."""
        random = torch.Generator().manual_seed(seed)
        tensors = []
        for place, shape in enumerate(self.shapes):
            if self.make and place in self.make:
                value = self.make[place](random)
                tensors.append(value.to(dtype) if value.is_floating_point() else value)
            else:
                tensors.append(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype))
        if channels_last:
            tensors = [canonical(each) for each in tensors]
        return [
            each.requires_grad_(self.differentiable and not (self.make and place in self.make))
            for place, each in enumerate(tensors)
        ]


def canonical(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` with canonical channels-last strides where its rank has them, in memory of its own."""
    wanted = channels_last_for(tensor.dim())
    if wanted is None:
        return tensor.clone()
    result = torch.empty_strided(tensor.shape, strides_for(tensor.shape, wanted), dtype=tensor.dtype)
    return result.copy_(tensor)


def outputs_of(result: Any) -> list[torch.Tensor]:
    return [each for each in (result if isinstance(result, tuple | list) else (result,)) if each is not None]


def is_canonical(tensor: torch.Tensor) -> bool:
    wanted = channels_last_for(tensor.dim())
    return wanted is None or tensor.stride() == strides_for(tensor.shape, wanted)


def gradient_for(output: torch.Tensor, how: str) -> torch.Tensor:
    """An incoming gradient: channels last, contiguous, or expanded from one number as a mean's is."""
    random = torch.Generator().manual_seed(7)
    if how == "expanded":
        return torch.full((), 0.25, dtype=output.dtype).expand(output.shape)
    values = torch.randn(output.shape, generator=random, dtype=torch.float64).to(output.dtype)
    return canonical(values) if how == "channels_last" else values


def run(
    sample: Sample, operands: Sequence[torch.Tensor], how: str = "channels_last"
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Outputs, and the gradients of the operands that require one."""
    outputs = outputs_of(sample.call(*operands))
    roots = [each for each in outputs if each.requires_grad]
    wanted = [each for each in operands if each.requires_grad]
    if not roots or not wanted:
        return [each.detach() for each in outputs], []
    found = torch.autograd.grad(roots, wanted, [gradient_for(each, how) for each in roots], allow_unused=True)
    return [each.detach() for each in outputs], list(found)


def switched(kernel: str | None) -> AbstractContextManager[None]:
    return nullcontext() if kernel is None else nhwc.kernels.use(kernel)


GRADIENTS = ("channels_last", "contiguous", "expanded")


def check_layout(kernel: str, sample: Sample, dtype: torch.dtype, hows: Sequence[str] = GRADIENTS) -> None:
    """Outputs and gradients are channels last with canonical strides, for incoming gradients of these layouts.

    All of them where backward knows the input; an operator whose backward sees nothing but the gradient follows that.
    Not so the indices among the outputs, which torch's own backward may have to read.
    """
    for how in hows:
        with switched(kernel):
            outputs, gradients = run(sample, sample.operands(dtype), how)
        images = [each for each in (*outputs, *gradients) if each is not None and each.dtype != torch.int64]
        for place, each in enumerate(images):
            assert is_canonical(each), f"{how}: tensor {place} has strides {each.stride()}, shape {tuple(each.shape)}"


def check_no_copies(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    """The audit's recorder sees no copy, in forward or in backward, neither as a call nor inside one."""
    operands = sample.operands(dtype)
    # warmed up: what a first call prepares (tables, libraries) is none of its operands' copies
    with switched(kernel):
        run(sample, sample.operands(dtype))
        outputs = outputs_of(sample.call(*sample.operands(dtype)))
        gradients = [gradient_for(each, "channels_last") for each in outputs]

        def step() -> None:
            found = outputs_of(sample.call(*operands))
            roots = [(each, grad) for each, grad in zip(found, gradients, strict=True) if each.requires_grad]
            wanted = [each for each in operands if each.requires_grad]
            if roots and wanted:
                torch.autograd.grad([r for r, _ in roots], wanted, [g for _, g in roots], allow_unused=True)

        trace = nhwc.record(step)
    assert trace.calls
    for call in trace.calls:
        assert call.name not in COPIES or call.view, f"{call.operator} in {call.phase}"
        assert not call.copies, f"{call.operator} copies inside: {[each.operator for each in call.copies]}"


def check_accuracy(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    """Errors against float64 are at most twice the original's, or four roundings of the largest value.

    Sums differ in their order, and with it in their last digits.
    """
    exact = run(sample, sample.operands(torch.float64, channels_last=False), "contiguous")
    own = run(sample, sample.operands(dtype, channels_last=False), "contiguous")
    with switched(kernel):
        ours = run(sample, sample.operands(dtype), "channels_last")
    for kind, wanted, original, found in zip(("output", "gradient"), exact, own, ours, strict=True):
        assert len(wanted) == len(found)
        for place, (want, one, other) in enumerate(zip(wanted, original, found, strict=True)):
            assert (want is None) == (other is None)
            if want is None or one is None or other is None:
                continue
            assert other.dtype == one.dtype
            assert other.shape == one.shape
            if not want.is_floating_point():
                assert torch.equal(other, one), f"{kind} {place}"
                continue
            # in float64 the original is itself what is compared with: roundings of sums are all that may differ
            roundings = 64.0 if dtype == torch.float64 else 4.0
            largest = float(want.abs().max()) if want.numel() else 0.0
            allowed = 2.0 * error(one, want) + roundings * torch.finfo(dtype).eps * largest
            assert error(other, want) <= allowed, f"{kind} {place}: error {error(other, want)}, allowed {allowed}"


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).abs().max()) if exact.numel() else 0.0


def check_derivatives(kernel: str, sample: Sample, second: bool = True) -> None:
    """gradcheck, and gradgradcheck where the original passes it."""
    operands = sample.operands(torch.float64)
    with switched(kernel):
        assert gradcheck(sample.call, operands, nondet_tol=1e-12, fast_mode=True)
    if second and _passes_twice(sample):
        with switched(kernel):
            assert gradgradcheck(sample.call, operands, nondet_tol=1e-12, fast_mode=True)


def _passes_twice(sample: Sample) -> bool:
    try:
        return bool(
            gradgradcheck(
                sample.call, sample.operands(torch.float64, channels_last=False), nondet_tol=1e-12, fast_mode=True
            )
        )
    except (RuntimeError, NotImplementedError):
        return False


def check_steps_aside(kernel: str, sample: Sample, dtype: torch.dtype) -> None:
    """Contiguous operands take the original: the same bits in the same layout."""
    plain = run(sample, sample.operands(dtype, channels_last=False), "contiguous")
    with switched(kernel):
        again = run(sample, sample.operands(dtype, channels_last=False), "contiguous")
    for originals, others in zip(plain, again, strict=True):
        for original, other in zip(originals, others, strict=True):
            assert (original is None) == (other is None)
            if original is not None and other is not None:
                assert torch.equal(original, other) or torch.equal(original.isnan(), other.isnan())
                assert original.stride() == other.stride()


def odd_layouts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same kind of operand in layouts that are neither dense nor plain."""
    wide = canonical(torch.cat([tensor, tensor], 1))
    return {
        "every other channel": wide[:, ::2],
        "a channel slice": wide[:, : tensor.shape[1]],
        "a row slice": canonical(torch.cat([tensor, tensor], 2))[:, :, : tensor.shape[2]],
        "expanded over the batch": canonical(tensor[:1]).expand(tensor.shape),
        "expanded over channels": canonical(tensor[:, :1]).expand(tensor.shape),
        "transposed": canonical(tensor).transpose(-1, -2).contiguous().transpose(-1, -2),
        "one image, unsqueezed": canonical(tensor)[0].unsqueeze(0),
    }


def check_odd_layouts(kernel: str, sample: Sample) -> None:
    """Sliced, expanded and permuted first operands: the original's values, or its error, in float64."""
    first, *rest = (each.detach() for each in sample.operands(torch.float64))
    for name, odd in odd_layouts(first).items():
        compare_calls(kernel, lambda odd=odd: sample.call(odd, *rest), name)


def check_shapes(kernel: str, call: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> None:
    """Empty, one-channel and one-pixel inputs: the original's values, or its error, and canonical strides."""
    for shape in shapes:
        tensor = canonical(torch.randn(shape, dtype=torch.float64))
        compare_calls(kernel, lambda tensor=tensor: call(tensor), str(shape))


def compare_calls(kernel: str, call: Callable[[], Any], name: str) -> None:
    """``call`` answers alike with the kernel and without: values up to rounding, or the type and words of its error."""
    expected, failure = attempt(call)
    with switched(kernel):
        found, other = attempt(call)
    assert type(failure) is type(other), f"{name}: {failure!r} without the kernel, {other!r} with it"
    if failure is not None:
        assert str(failure) == str(other), name
        return
    assert len(expected) == len(found), name
    for want, have in zip(expected, found, strict=True):
        assert want.dtype == have.dtype, name
        torch.testing.assert_close(have, want, equal_nan=True, msg=lambda text: f"{name}: {text}")


def attempt(call: Callable[[], Any]) -> tuple[list[torch.Tensor], Exception | None]:
    try:
        return outputs_of(call()), None
    except Exception as error:  # noqa: BLE001 whatever the original raises is the expectation
        return [], error


def check_threads(kernel: str, step: Callable[[], Sequence[torch.Tensor]]) -> None:
    """``step`` answers the same to the bit on one thread and on two."""
    threads = torch.get_num_threads()
    with switched(kernel):
        try:
            torch.set_num_threads(2)
            wanted = step()
            torch.set_num_threads(1)
            found = step()
        finally:
            torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def check_error(kernel: str, call: Callable[[], Any]) -> None:
    """A call that the original refuses is refused in the same words."""
    _, failure = attempt(call)
    assert failure is not None, "the original takes this call"
    compare_calls(kernel, call, "bad input")


DTYPES = (torch.float32, torch.bfloat16)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda each: str(each).removeprefix("torch."))
