"""The section of gpu_check.py on nhwc's kernels: each one's error, strides and time against torch's own, forward and
backward. It registers itself where gpu_check.py imports it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from gpu_claims import Answer, Line, judge
from gpu_sections import Plan, attempt, section
from torch.nn import functional as F  # noqa: N812 the usual name

import nhwc
from nhwc.kernels import gpu
from nhwc.measure.stats import paired_ratio
from nhwc.schema.typed import plain
from nhwc.strides import channels_last_for, strides_for

TITLE = "Kernels"
CLAIM = "no slower than torch's in contiguous, error at most twice its own, channels last throughout"
_ROUNDS, _CALLS = 12, 3
Operands = list[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """``call(*operands)`` with operands of these shapes on a GPU; tiny: the same for a smoke run.

    kernels: those that are switched on. backward: a gradient comes back for every operand. dtypes: besides float32.
    """

    name: str
    kernels: tuple[str, ...]
    call: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    tiny: tuple[tuple[int, ...], ...]
    backward: bool = True
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)

    def operands(self, plan: Plan, dtype: torch.dtype) -> Operands:
        """Contiguous, drawn at random, each time the same."""
        source = torch.Generator(plan.device).manual_seed(0)
        shapes = self.tiny if plan.tiny else self.shapes
        return [torch.randn(shape, generator=source, device=plan.device, dtype=dtype) for shape in shapes]


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 4, weight, bias)


def _shuffle(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def _sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, grid.tanh(), align_corners=False)


def _to_channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.channels_last)


VOLUME, SMALL_VOLUME = (8, 32, 64, 64, 64), (1, 8, 4, 4, 4)
IMAGE, SMALL_IMAGE = (32, 256, 64, 64), (2, 8, 6, 6)
_HALF = (torch.float32, torch.bfloat16)

CASES = (
    Case("instance_norm, 3-D", ("instance_norm",), F.instance_norm, (VOLUME,), (SMALL_VOLUME,), dtypes=_HALF),
    Case("group_norm", ("group_norm",), _norm, (IMAGE, (256,), (256,)), (SMALL_IMAGE, (8,), (8,)), dtypes=_HALF),
    Case("avg_pool3d", ("avg_pool3d",), lambda x: F.avg_pool3d(x, 2), (VOLUME,), (SMALL_VOLUME,), dtypes=_HALF),
    Case(
        "adaptive_avg_pool3d to 4",
        ("adaptive_avg_pool",),
        lambda x: F.adaptive_avg_pool3d(x, 4),
        (VOLUME,),
        (SMALL_VOLUME,),
    ),
    Case(
        "global average pooling",
        ("adaptive_avg_pool",),
        lambda x: F.adaptive_avg_pool2d(x, 1),
        ((256, 1024, 14, 14),),
        (SMALL_IMAGE,),
    ),
    Case(
        "grid_sample, 2-D",
        ("grid_sample",),
        _sample,
        ((16, 64, 128, 128), (16, 128, 128, 2)),
        ((2, 16, 6, 6), (2, 5, 5, 2)),
    ),
    Case(
        "grid_sample, 3-D",
        ("grid_sample",),
        _sample,
        ((4, 32, 32, 64, 64), (4, 32, 64, 64, 3)),
        ((1, 16, 4, 4, 4), (1, 3, 3, 3, 3)),
    ),
    Case("channel shuffle by hand", ("channel_shuffle",), _shuffle, ((128, 232, 28, 28),), (SMALL_IMAGE,)),
    Case("softmax over channels", ("softmax",), lambda x: x.softmax(1), ((16, 32, 256, 256),), (SMALL_IMAGE,)),
    Case("roll", ("roll",), lambda x: x.roll((3, 3), (2, 3)), (IMAGE,), (SMALL_IMAGE,)),
    Case(
        "silu below a mean",
        ("activation_backward",),
        lambda x: F.silu(x).mean((2, 3), keepdim=True),
        (IMAGE,),
        (SMALL_IMAGE,),
    ),
)


@section(TITLE, 60.0)
def kernels(plan: Plan, end_s: float) -> Iterator[Line]:
    """Every kernel that stands in on a GPU, and the conversion between the formats."""
    if plan.device.type == "cuda" and not gpu.has_triton():
        yield Line(TITLE, "Triton", CLAIM, "triton cannot be imported: its kernels are left out", Answer.FAILED)
    for case in CASES:
        for dtype in case.dtypes[:1] if plan.tiny else case.dtypes:
            name = f"{case.name}, {str(dtype).removeprefix('torch.')}"
            if time.monotonic() > end_s - 5.0 and not plan.tiny:
                yield Line(TITLE, name, CLAIM, "the section's time was up", Answer.NOT_REACHED)
                continue
            yield attempt(TITLE, name, CLAIM, lambda: _compared(name, case, dtype, plan))  # noqa: B023 - at once
    yield attempt(TITLE, "conversion", "no slower than torch's", lambda: _converted(plan))


def _compared(name: str, case: Case, dtype: torch.dtype, plan: Plan) -> Line:
    """Values and strides of one case, then its time in three forms, call by call in turn."""
    contiguous = case.operands(plan, dtype)
    grad = _gradient(case, contiguous)
    fault = _fault(case, contiguous, grad)
    if fault:
        return Line(TITLE, name, CLAIM, fault, Answer.FAILS)
    last, last_grad = [_in_channels_last(each) for each in contiguous], _in_channels_last(grad)
    switched = {"channels last with kernels": lambda: nhwc.kernels.use(*case.kernels)}
    steps: dict[str, Callable[[], object]] = {
        "contiguous": lambda: _step(case, contiguous, grad),
        "channels last": lambda: _step(case, last, last_grad),
        "channels last with kernels": lambda: _step(case, last, last_grad),
    }
    samples = alternate_on(plan.device, steps, switched)
    return _told((name, CLAIM), samples, "channels last with kernels", "contiguous", plan)


def _converted(plan: Plan) -> Line:
    shape = SMALL_IMAGE if plan.tiny else (32, 256, 128, 128)
    x = torch.randn(shape, device=plan.device)
    last = _in_channels_last(x)
    with nhwc.kernels.use("conversion"):
        there, back = _to_channels_last(x), last.clone(memory_format=torch.contiguous_format)
    if not (there.equal(x) and back.equal(x) and there.stride() == last.stride() and back.stride() == x.stride()):
        return Line(TITLE, "conversion", "", "the copy differs from its source", Answer.FAILS)
    steps: dict[str, Callable[[], object]] = dict.fromkeys(("without", "with"), lambda: _there_and_back(x, last))
    samples = alternate_on(plan.device, steps, {"with": lambda: nhwc.kernels.use("conversion")})
    return _told(("conversion", "no slower than torch's"), samples, "with", "without", plan)


def _there_and_back(x: torch.Tensor, last: torch.Tensor) -> None:
    _to_channels_last(x)
    last.clone(memory_format=torch.contiguous_format)


def _told(where: tuple[str, str], samples: dict[str, list[float]], ours: str, base: str, plan: Plan) -> Line:
    """where: name and claim. A smoke run claims nothing on speed."""
    ratios = {each: paired_ratio(samples[each], samples[ours]) for each in samples if each != ours}
    told = "; ".join(
        f"{ratio.estimate:.2f} times as fast as {each} ({ratio.low:.2f} to {ratio.high:.2f})"
        for each, ratio in ratios.items()
    )
    raw = {"samples_ms": samples, "ratios": {each: plain(ratio) for each, ratio in ratios.items()}}
    return Line(TITLE, *where, told, judge(ratios[base], None if plan.tiny else 1.0), raw=raw)


def _fault(case: Case, contiguous: Operands, grad: torch.Tensor) -> str:
    """What is wrong with the kernel's outputs and gradients, or nothing."""
    exact = _step(case, [each.double() for each in contiguous], grad.double())
    own = _step(case, contiguous, grad)
    with nhwc.kernels.use(*case.kernels):
        found = _step(case, [_in_channels_last(each) for each in contiguous], _in_channels_last(grad))
    for place, (want, one, other) in enumerate(zip(exact, own, found, strict=True)):
        rank = channels_last_for(other.dim())
        # the second operand of grid_sample is a grid, whose gradient is contiguous as torch's is
        is_image = rank is not None and place < 2 and other.shape[2:].numel() > 1
        if is_image and other.stride() != strides_for(other.shape, rank):
            return f"result {place} has strides {other.stride()}"
        errors = [float((each.double() - want).abs().max()) for each in (one, other)]
        allowed = 2.0 * errors[0] + 4.0 * torch.finfo(other.dtype).eps * float(want.abs().max())
        if not errors[1] <= allowed:
            return f"result {place} is off by {errors[1]:.3g}, torch's by {errors[0]:.3g}"
    return ""


def _gradient(case: Case, operands: Operands) -> torch.Tensor:
    result = case.call(*operands)
    source = torch.Generator(result.device).manual_seed(1)
    return torch.randn(result.shape, generator=source, device=result.device, dtype=result.dtype)


def _step(case: Case, operands: Operands, grad: torch.Tensor) -> Operands:
    leaves = [each.detach().requires_grad_(case.backward) for each in operands]
    result = case.call(*leaves)
    if not case.backward:
        return [result]
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


def _in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    rank = channels_last_for(tensor.dim())
    return tensor if rank is None else nhwc.to_format(tensor, rank)


def alternate_on(
    device: torch.device,
    steps: dict[str, Callable[[], object]],
    around: dict[str, Callable[[], AbstractContextManager[object]]],
) -> dict[str, list[float]]:
    """Milliseconds per call of every step in every round, in random order, by the GPU's clock; two rounds warm up."""
    order, shuffled = list(steps), random.Random(0)
    samples: dict[str, list[float]] = {name: [] for name in order}
    for round_number in range(_ROUNDS + 2):
        shuffled.shuffle(order)
        for name in order:
            with around.get(name, nullcontext)():
                took = _timed(device, steps[name])
            if round_number >= 2:
                samples[name].append(took)
    return samples


def _timed(device: torch.device, step: Callable[[], object]) -> float:
    if device.type != "cuda":
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            step()
        return (time.perf_counter_ns() - start) / 1e6 / _CALLS
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(_CALLS):
        step()
    end.record()
    end.synchronize()
    elapsed: Any = begin.elapsed_time(end)
    return float(elapsed) / _CALLS
