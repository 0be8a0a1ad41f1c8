"""A wrong gradient of instance norm is told by running it."""

import pytest
import torch
from torch.nn import functional

import nhwc
from nhwc.health import State
from nhwc.machine import norms

NAME = "instance norm's gradient at batch 1"


def by_hand(image: torch.Tensor) -> torch.Tensor:
    centred = image - image.mean((2, 3), keepdim=True)
    return centred * (centred.square().mean((2, 3), keepdim=True) + 1e-5).rsqrt()


def wrong(image: torch.Tensor) -> torch.Tensor:
    result = by_hand(image)
    result.register_hook(lambda grad: grad * 2.0 if grad.stride(1) == 1 else grad)
    return result


@pytest.mark.parametrize(("function", "errs"), [(by_hand, False), (wrong, True)])
def test_a_gradient_that_depends_on_the_format_is_wrong(
    function: object, errs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "instance_norm", function)
    assert norms.instance_norm_errs() is errs
    with torch.inference_mode():
        assert norms.instance_norm_errs() is errs


def test_the_doctor_names_it_exactly_where_it_is_so() -> None:
    image = torch.randn(1, 16, 12, 10, requires_grad=True)
    incoming = torch.randn(1, 16, 12, 10)
    exact = torch.autograd.grad(by_hand(image), image, incoming)[0]
    found = torch.autograd.grad(functional.instance_norm(image), image, incoming.to(memory_format=torch.channels_last))[
        0
    ]
    is_wrong = not torch.allclose(found, exact, rtol=1e-3, atol=1e-3)
    facts = [each for each in nhwc.doctor("cpu", quick=True).facts if each.name == NAME]
    assert bool(facts) is is_wrong
    assert all(each.state is State.WRONG and "nhwc.kernels.use()" in each.advice for each in facts)
