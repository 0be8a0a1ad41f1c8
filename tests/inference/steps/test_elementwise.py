"""Elementwise chains against torch in float64: activations, broadcasts, slices, in place, any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from inference.activations import REFERENCES
from inference.running import by_every_candidate, relative_error, request, run_step
from torch.nn import functional

import nhwc.inference.steps.elementwise  # noqa: F401 registers
from nhwc.inference.native import Activation
from nhwc.inference.operations import Elementwise, Fused, Term
from nhwc.inference.steps.registry import candidates

X, Y = Term("input", index=0), Term("input", index=1)
CLAMP = Activation.CLAMP
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -88.0, 88.5, 1e30, -20.0)

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "abs": torch.abs,
    "negate": torch.neg,
    "reciprocal": torch.reciprocal,
    "erf": torch.erf,
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def computed(
    terms: Sequence[Term], *inputs: torch.Tensor, output: torch.Tensor | None = None, threads: int = 2
) -> torch.Tensor:
    output = torch.empty_like(inputs[0]) if output is None else output
    results = by_every_candidate(request(Elementwise(tuple(terms)), inputs, output, threads=threads), output)
    assert list(results) == ["elementwise"]
    return results["elementwise"]


def sliced(n: int, c: int, h: int, w: int, wider: int = 5) -> torch.Tensor:
    """A channels-last picture that is some channels of a wider one."""
    return torch.randn(n, h, w, c + wider)[..., 2 : 2 + c].permute(0, 3, 1, 2)


def test_every_activation_is_tried() -> None:
    assert set(REFERENCES) == set(Activation) - {Activation.PRELU}


@pytest.mark.parametrize("activation", REFERENCES, ids=lambda each: each.name)
def test_activations(activation: Activation) -> None:
    of = REFERENCES[activation]
    x = torch.cat([torch.linspace(-12, 12, 4099), torch.randn(2000) * 1e-3, torch.tensor(SPECIAL)])
    found = computed([X, Term("activation", (0,), activation=activation, lo=of.lo, hi=of.hi)], x)
    expected = of.exact(x.double())
    finite = expected.isfinite()
    error = (found.double() - expected).abs()[finite] / expected.abs()[finite].clamp_min(0.25)
    assert error.max().item() < 8e-7
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[expected.isinf()], expected[expected.isinf()].float())


@pytest.mark.parametrize("kind", UNARY)
def test_functions_of_one(kind: str) -> None:
    x = torch.cat([torch.randn(4099) * 5, torch.rand(1000) * 1e-3, torch.tensor(SPECIAL)])
    found, expected = computed([X, Term(kind, (0,))], x), UNARY[kind](x.double()).float()
    assert torch.allclose(found, expected, rtol=4e-7, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 1.0, -1.0, 0.5, 1.7])
def test_powers(exponent: float) -> None:
    x = torch.rand(333) * 3
    found = computed([X, Term("power", (0,), value=exponent)], x)
    assert torch.allclose(found.double(), x.double() ** exponent, rtol=4e-7)


@pytest.mark.parametrize("kind", BINARY)
def test_functions_of_two_with_nan(kind: str) -> None:
    x, y = torch.randn(2, 1000 + len(SPECIAL))
    x[: len(SPECIAL)], y[-len(SPECIAL) :] = torch.tensor(SPECIAL), torch.tensor(SPECIAL)
    found = computed([X, Y, Term(kind, (0, 1))], x, y)
    assert torch.allclose(found, BINARY[kind](x, y), equal_nan=True, rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("c", [1, 3, 17, 64, 1500])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, -1, 1, 1), (2, -1, 1, 1), (2, 1, 9, 7), (2, -1, 9, 7), (1, 1, 1, 7)], ids=str
)
def test_broadcasts(shape: tuple[int, ...], c: int, threads: int) -> None:
    x, y = sliced(2, c, 9, 7), torch.randn([c if size == -1 else size for size in shape])
    gate = Term("activation", (1,), activation=Activation.SIGMOID)
    terms = [
        X,
        Y,
        gate,
        Term("multiply", (2, 0)),
        Term("add", (3, 0)),
        Term("activation", (4,), activation=CLAMP, hi=2),
    ]
    whole = torch.randn(2, 9, 7, c + 5)
    untouched = whole.clone()
    output = whole[..., 3 : 3 + c].permute(0, 3, 1, 2)
    found = computed(terms, x, y, output=output, threads=threads)
    assert torch.allclose(found, (x + x * y.sigmoid()).clamp(0, 2), rtol=1e-5, atol=1e-6)
    untouched[..., 3 : 3 + c] = found.permute(0, 2, 3, 1)
    assert torch.equal(whole, untouched)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 7, 33), (2, 5, 3, 4, 6)], ids=lambda each: f"{len(each)}d")
def test_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape[-1:])
    assert torch.equal(computed([X, Y, Term("add", (0, 1))], x, y), x + y)
    turned = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    assert torch.equal(computed([X, Y, Term("multiply", (0, 1))], x, turned), x * turned)


def test_a_long_chain_uses_few_registers_and_every_kind() -> None:
    x, y = torch.rand(2, 20, 9, 7).permute(0, 1, 3, 2) + 0.5, torch.rand(20, 1, 1) + 0.5
    terms = [X, Y]
    expected = x.double()
    for kind, of_one in UNARY.items():
        terms += [Term("abs", (len(terms) - 1 if len(terms) > 2 else 0,))]
        terms += [Term("constant", value=0.75), Term("add", (len(terms) - 1, len(terms)))]
        terms += [Term(kind, (len(terms) - 1,))]
        expected = of_one(expected.abs() + 0.75)
    assert len(terms) > 24  # two of them inputs
    short = terms[: 2 + 4 * 4]
    partial = x.double()
    for of_one in list(UNARY.values())[:4]:
        partial = of_one(partial.abs() + 0.75)
    assert relative_error(computed(short, x, y), partial) < 1e-6
    output = torch.empty_like(x)
    assert not candidates(request(Elementwise(tuple(terms)), (x, y), output))


def test_in_place() -> None:
    x, y = sliced(2, 30, 9, 7), torch.randn(30, 1, 1)
    expected = (x * y + x).relu()
    terms = (
        X,
        Y,
        Term("multiply", (0, 1)),
        Term("add", (2, 0)),
        Term("activation", (3,), activation=CLAMP, hi=math.inf),
    )
    [candidate] = candidates(request(Elementwise(terms), (x, y), x))
    run_step(candidate.build())
    assert torch.allclose(x, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_epilogues_become_terms(last: bool) -> None:
    x, more, slope = sliced(2, 19, 5, 3), sliced(2, 19, 5, 3), torch.rand(19)
    fused = Fused(Activation.PRELU, slope=slope, addend_last=last)
    output = torch.empty_like(x)
    asked = request(Elementwise((X, Term("abs", (0,)), Term("negate", (1,)))), (x,), output, fused, more)
    found = by_every_candidate(asked, output)["elementwise"]
    expected = functional.prelu(-x.abs(), slope) + more if last else functional.prelu(-x.abs() + more, slope)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_the_result_may_be_an_input_a_constant_or_read_more_than_once() -> None:
    x = sliced(1, 7, 3, 3)
    assert torch.equal(computed([X], x), x)
    assert torch.equal(computed([X, Term("constant", value=2.5)], x), torch.full_like(x, 2.5))
    assert torch.equal(computed([X, Term("multiply", (0, 0)), Term("add", (1, 1))], x), 2 * (x * x))


def test_no_picture_at_all() -> None:
    assert computed([X, Term("abs", (0,))], torch.randn(0, 3, 4, 5)).shape == (0, 3, 4, 5)


def test_what_does_not_fit_is_refused() -> None:
    x, output = torch.randn(2, 3), torch.empty(2, 4)
    assert not candidates(request(Elementwise((X,)), (x,), output))
    assert not candidates(request(Elementwise((X,)), (x,), torch.empty(1, 3).expand(2, 3)))
