"""Every algorithm's step as data: read back with its constants elsewhere, it computes the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from inference.running import request, run_step

from nhwc.errors import EngineError
from nhwc.inference.native import Activation, Placed, Step
from nhwc.inference.operations import (
    AdaptivePool,
    Convolution,
    Copy,
    Elementwise,
    Fused,
    InvertedResidual,
    Linear,
    Mean,
    Normalization,
    Operation,
    Pool,
    Resample,
    Softmax,
    Term,
)
from nhwc.inference.saving import steps
from nhwc.inference.saving.constants import Constants, Kept
from nhwc.inference.steps import copying
from nhwc.inference.steps.registry import Request, candidates

PIXELS, WIDE = (2, 20, 10, 9), (2, 24, 10, 9)


def picture(*shape: int) -> torch.Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def convolution(outputs: int, inputs: int, size: int, groups: int = 1, stride: int = 1) -> Convolution:
    weight, bias = torch.randn(outputs, inputs // groups, size, size), torch.randn(outputs)
    return Convolution(weight, bias, (stride,) * 2, (size // 2,) * 2, (1, 1), groups, False, (0, 0))


def transposed() -> Convolution:
    return Convolution(torch.randn(20, 24, 2, 2), None, (2, 2), (0, 0), (1, 1), 1, True, (0, 0))


Made = tuple[Operation, list[torch.Tensor], torch.Tensor, Fused]


def residual() -> Made:
    work = InvertedResidual(
        convolution(48, 20, 1), convolution(48, 48, 3, 48), convolution(20, 48, 1), (Fused(), Fused())
    )
    return work, [picture(*PIXELS)], picture(*PIXELS), Fused()


def prelu() -> Fused:
    return Fused(Activation.PRELU, slope=torch.rand(24))


CASES: dict[str, Callable[[], Made]] = {
    "3x3": lambda: (convolution(24, 20, 3), [picture(*PIXELS)], picture(*WIDE), prelu()),
    "1x1": lambda: (convolution(24, 20, 1), [picture(*PIXELS)], picture(*WIDE), prelu()),
    "groups": lambda: (convolution(24, 20, 3, 4), [picture(*PIXELS)], picture(*WIDE), Fused()),
    "depthwise": lambda: (convolution(20, 20, 3, 20), [picture(*PIXELS)], picture(*PIXELS), Fused()),
    "stem": lambda: (convolution(24, 3, 7, 1, 2), [torch.randn(2, 3, 20, 18)], picture(*WIDE), prelu()),
    "transposed": lambda: (transposed(), [picture(*PIXELS)], picture(2, 24, 20, 18), Fused()),
    "residual": residual,
    "linear": lambda: (Linear(torch.randn(7, 20), torch.randn(7)), [torch.randn(5, 20)], torch.randn(5, 7), Fused()),
    "maximum": lambda: (
        Pool("maximum", (3, 3), (1, 1), (1, 1), (1, 1)),
        [picture(*PIXELS)],
        picture(*PIXELS),
        Fused(),
    ),
    "adaptive": lambda: (AdaptivePool("average"), [picture(*PIXELS)], picture(2, 20, 3, 3), Fused()),
    "mean": lambda: (Mean(), [picture(*PIXELS)], torch.randn(2, 20), Fused()),
    "resampling": lambda: (
        Resample("linear", False, (None, None)),
        [picture(*PIXELS)],
        picture(2, 20, 15, 17),
        Fused(),
    ),
    "group norm": lambda: (
        Normalization("group", 4, torch.randn(20), torch.randn(20), 1e-5),
        [picture(*PIXELS)],
        picture(*PIXELS),
        Fused(),
    ),
    "softmax": lambda: (Softmax(), [torch.randn(5, 20)], torch.randn(5, 20), Fused()),
    "elementwise": lambda: (
        Elementwise((Term("input"), Term("input", index=1), Term("multiply", (0, 1)))),
        [picture(*PIXELS), torch.randn(1, 20, 1, 1)],
        picture(*PIXELS),
        Fused(Activation.SILU),
    ),
    "copy": lambda: (Copy(((1, 1), (2, 0)), 0.5), [picture(*PIXELS)], picture(2, 20, 12, 11), Fused()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_read_back_computes_the_same(name: str) -> None:
    work, inputs, output, fused = CASES[name]()
    asked: Request = request(work, inputs, output, fused)
    found = candidates(asked)
    assert found
    for candidate in found:
        output.fill_(float("nan"))
        step = candidate.build()
        constants = Constants()
        document = json.loads(json.dumps(steps.written(step, [*inputs, output], constants)))
        # where the output lies is a constant of these requests too
        there, memory = constants.memory(output), [each.clone() for each in constants.tensors]
        again = steps.read(document, Kept(memory))
        run_step(step)
        run_step(again)
        assert torch.equal(memory[there].view(torch.int32), constants.tensors[there].view(torch.int32)), candidate.label
        assert again.label == candidate.label
        # what was read is written the same
        once_more = steps.written(again, [], Constants())
        assert once_more["numbers"] != []
        assert [place for place, _, _ in once_more["addresses"]] == [place for place, _, _ in document["addresses"]]


def test_memory_that_nobody_holds_is_refused() -> None:
    x, y = torch.randn(4), torch.randn(4)
    lost = Placed(0, 64, (4,), (1,))
    parameters = copying.Parameters(lost.ref, Placed.constant(y).ref, 0.0, 0)
    with pytest.raises(EngineError, match="reads memory that nobody holds"):
        steps.written(Step("copy", parameters, "copy"), [x, y], Constants())


def test_equal_constants_are_kept_once() -> None:
    constants = Constants()
    first = torch.randn(8, 3)
    assert constants.memory(first) == constants.memory(first.clone())
    assert constants.memory(first.t()) == constants.memory(first)
    assert constants.memory(first[:, :2]) != constants.memory(first)
    assert constants.memory(torch.empty(0)) != constants.memory(first)
    kept = Kept(constants.tensors)
    assert torch.equal(kept.tensor(constants.add(first.t())), first.t())
