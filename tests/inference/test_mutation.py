"""In place operators: the result is eager's whatever they write, and inputs are never written."""

from collections.abc import Callable

import pytest
import torch
from inference.engines import fast, kinds_of
from inference.importing.test_operators import Of

from nhwc.errors import EngineError


def through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, :2].add_(1)
    return y + 1


def read_by_another_name(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    flat = y.view(-1)
    y.relu_()
    return flat * 2


def into_constants(x: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(4, 4)
    mask[1:3] = 5
    return x + mask


def into_what_dropout_returned(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch.nn.functional.dropout(y, training=False).mul_(3)
    return y


def input_itself(x: torch.Tensor) -> torch.Tensor:
    return torch.relu_(x) + 1


def a_list(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._foreach_add_([y], 1.0)
    return y * 2


def another_argument(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y * 2


def a_wider_operand(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.mul_(torch.arange(4, dtype=torch.float64).view(4, 1, 1))
    return y


def wider_integers(x: torch.Tensor) -> torch.Tensor:
    y = x.to(torch.int32)
    y.add_(x.to(torch.int64))
    return y


CASES = [through_a_view, read_by_another_name, into_constants, into_what_dropout_returned, input_itself]
CASES += [a_list, another_argument, a_wider_operand, wider_integers]


@pytest.mark.parametrize("function", CASES, ids=lambda each: each.__name__)
def test_results_are_eagers(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(2, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    engine = fast(Of(function), x.clone())
    given = x.clone()
    result = engine(given)
    assert torch.equal(given, x)
    torch.testing.assert_close(result, function(x.clone()))


def test_the_quick_way_suffices_for_layers_in_place() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU(inplace=True)).eval()
    assert kinds_of(model, torch.randn(1, 3, 4, 4)) == {"Convolution": 1}


def through_einsum(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch.einsum("nchw->nhwc", y).mul_(3)
    return y


def through_meshgrid(x: torch.Tensor) -> torch.Tensor:
    y = x[0, 0, 0] + 1
    first, _ = torch.meshgrid(y, y, indexing="ij")
    y.mul_(3)
    return first + 1


@pytest.mark.parametrize("function", [through_einsum, through_meshgrid], ids=lambda each: each.__name__)
def test_views_that_no_schema_declares_are_refused(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(EngineError, match="does not declare"):
        fast(Of(function), torch.ones(2, 4, 4, 4))


@pytest.mark.parametrize(
    "second",
    [
        torch.clone,
        lambda y: y.permute(0, 2, 3, 1).reshape(2, -1),
        lambda y: torch.cat([y], 1),
        lambda y: torch.nn.functional.pad(y, (0, 0)),
    ],
    ids=["clone", "reshape", "cat", "pad"],
)
def test_what_eager_returns_in_two_memories_is_in_two(second: Callable[[torch.Tensor], torch.Tensor]) -> None:
    conv = torch.nn.Conv2d(3, 4, 1).eval()

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, second(y)

    x = torch.randn(2, 3, 4, 4)
    engine = fast(torch.nn.Sequential(conv, Of(function)).eval(), x)
    first, other = engine(x)
    expected = function(conv(x))
    first.fill_(7)
    torch.testing.assert_close(other, expected[1])
    again = engine(x)
    torch.testing.assert_close(again[0], expected[0])
