"""Arithmetic of a contiguous and a channels-last tensor: the channels-last one decides the result's layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernels import conformance
from kernels.conformance import canonical

import nhwc

SHAPE = (2, 6, 5, 7)
OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "add with alpha": lambda x, y: torch.add(x, y, alpha=3),
}
every = pytest.mark.parametrize("call", OPERATORS.values(), ids=OPERATORS)


@every
@pytest.mark.parametrize("other", [SHAPE, (1, 6, 5, 7)], ids=["same size", "broadcast over the batch"])
def test_the_result_is_channels_last_in_either_order(call: Callable[..., torch.Tensor], other: tuple[int, ...]) -> None:
    last, plain = canonical(torch.randn(SHAPE)), torch.randn(other)
    with nhwc.kernels.use("mixed_pointwise"):
        for operands in ((last, plain), (plain, last)):
            result = call(*operands)
            assert conformance.is_canonical(result)
            assert torch.equal(result, call(*(each.contiguous() for each in operands)))


def test_gradients_flow_to_both() -> None:
    last = canonical(torch.randn(SHAPE, dtype=torch.float64)).requires_grad_()
    plain = torch.randn(1, *SHAPE[1:], dtype=torch.float64).requires_grad_()
    with nhwc.kernels.use("mixed_pointwise"):
        assert torch.autograd.gradcheck(torch.mul, (plain, last))
        assert torch.autograd.gradgradcheck(torch.mul, (plain, last))


@every
def test_contiguous_operands_take_the_original(call: Callable[..., torch.Tensor]) -> None:
    with nhwc.kernels.use("mixed_pointwise"):
        assert call(torch.randn(SHAPE), torch.randn(SHAPE)).is_contiguous()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (canonical(torch.randn(SHAPE)), torch.randn(1, 6, 1, 1)),
        (torch.randn(6, 1, 1), canonical(torch.randn(SHAPE))),
        (canonical(torch.randn(SHAPE)), torch.tensor(2.0)),
        (canonical(torch.randn(1, 6, 5, 7)), torch.randn(SHAPE)),
        (canonical(torch.randn(SHAPE)), torch.randn(SHAPE).bfloat16()),
        (torch.randint(9, SHAPE), canonical(torch.randn(SHAPE))),
        (canonical(torch.randn(0, 6, 5, 7)), torch.randn(0, 6, 5, 7)),
        (canonical(torch.randn(SHAPE)), torch.randn(2, 6, 5, 6)),
    ],
)
@every
def test_any_other_pair_answers_as_before(
    call: Callable[..., torch.Tensor], first: torch.Tensor, second: torch.Tensor
) -> None:
    conformance.compare_calls("mixed_pointwise", lambda: call(first, second), "first, second")
    conformance.compare_calls("mixed_pointwise", lambda: call(second, first), "second, first")


@pytest.mark.parametrize("number", [2, 0.5, -0.0, True, float("nan"), 1 + 2j])
@pytest.mark.parametrize("tensor", [torch.randn(3), torch.tensor(1.5), torch.arange(3), torch.randn(2).bfloat16()])
@every
def test_numbers_answer_as_before(call: Callable[..., torch.Tensor], tensor: torch.Tensor, number: complex) -> None:
    for operands in ((tensor, number), (number, tensor)):
        conformance.compare_calls("mixed_pointwise", lambda operands=operands: call(*operands), str(operands))


def test_the_sign_of_a_zero_is_kept() -> None:
    with nhwc.kernels.use("mixed_pointwise"):
        assert torch.copysign(torch.ones(1), torch.ones(1) * 0.0) == 1
        assert torch.copysign(torch.ones(1), torch.ones(1) * -0.0) == -1
