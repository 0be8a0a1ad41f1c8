"""torch's own operator tests with every kernel on: what passes without the kernels passes with them.

Samples come from the OpInfo database of torch.testing, read from torch 2.11 to 2.14, in channels last.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernels.conformance import canonical
from torch.autograd import gradcheck
from torch.utils._pytree import tree_map

import nhwc
from nhwc.ops import opinfo

pytest.importorskip("expecttest")

NAMES = (
    "add,cat,chunk,copysign,div,index_select,log_softmax,maximum,minimum,mul,roll,softmax,split,sub,sigmoid,tanh,logit,"
    "nn.functional.instance_norm,nn.functional.group_norm,nn.functional.batch_norm,nn.functional.conv2d,nn.functional.conv3d,"
    "nn.functional.conv_transpose3d,nn.functional.avg_pool3d,nn.functional.adaptive_avg_pool2d,"
    "nn.functional.adaptive_avg_pool3d,nn.functional.adaptive_max_pool2d,nn.functional.adaptive_max_pool3d,"
    "nn.functional.fractional_max_pool2d,nn.functional.fractional_max_pool3d,nn.functional.max_unpool2d,"
    "nn.functional.max_unpool3d,nn.functional.channel_shuffle,nn.functional.silu,nn.functional.hardswish,"
    "nn.functional.hardtanh,nn.functional.relu6,nn.functional.relu,nn.functional.gelu,nn.functional.elu,"
    "nn.functional.leaky_relu,nn.functional.hardsigmoid,nn.functional.mish,nn.functional.softplus,"
    "nn.functional.softshrink,nn.functional.hardshrink,nn.functional.logsigmoid,__getitem__,reshape,contiguous,clone,"
    "nn.functional.grid_sample,nn.functional.interpolate,nn.functional.pad,nn.functional.unfold,nn.functional.fold"
).split(",")
INFOS = [
    info for info in opinfo.database() if any(info.name == name or info.name.startswith(f"{name}.") for name in NAMES)
]
MOST_SAMPLES = 24


def samples(
    info: Any, dtype: torch.dtype, requires_grad: bool
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Samples with an operand of rank 4 or 5, all such operands in channels last."""

    def laid_out(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() not in {4, 5} or not value.numel():
            return value
        return canonical(value.detach()).requires_grad_(value.requires_grad)

    found = 0
    for sample in info.sample_inputs("cpu", dtype, requires_grad=requires_grad):
        operands = tree_map(laid_out, (sample.input, tuple(sample.args), dict(sample.kwargs)))
        leaves = torch.utils._pytree.tree_leaves(operands)
        if any(isinstance(each, torch.Tensor) and each.dim() in {4, 5} for each in leaves):
            found += 1
            yield operands
        if found == MOST_SAMPLES:
            return


def outcome(info: Any, operands: tuple[Any, tuple[Any, ...], dict[str, Any]], seed: int = 0) -> Any:
    torch.manual_seed(seed)
    first, rest, named = operands
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch gives some once per process: to the first of two calls only
            return info.op(first, *rest, **named)
    except Exception as error:  # noqa: BLE001 whatever torch raises is the expectation
        return type(error)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, *(pytest.param(each, marks=pytest.mark.slow) for each in (torch.bfloat16, torch.int64))],
    ids=str,
)
@pytest.mark.parametrize("info", INFOS, ids=lambda info: f"{info.name}-{info.variant_test_name}")
def test_forward_answers_alike(info: Any, dtype: torch.dtype) -> None:
    if dtype not in info.supported_dtypes("cpu"):
        pytest.skip("torch has no such kernel")
    for operands in samples(info, dtype, requires_grad=False):
        expected = outcome(info, operands)
        with nhwc.kernels.use():
            found = outcome(info, operands)
        if isinstance(expected, type):
            assert found is expected
        else:
            # torch sums in bfloat16 where the kernels sum in float32
            loose = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
            torch.testing.assert_close(found, expected, equal_nan=True, **loose)


@pytest.mark.slow
@pytest.mark.parametrize(
    "info", [info for info in INFOS if info.supports_autograd], ids=lambda info: f"{info.name}-{info.variant_test_name}"
)
def test_gradients_pass_where_they_pass_without(info: Any) -> None:
    for operands in list(samples(info, torch.float64, requires_grad=True))[:6]:
        first, rest, named = operands
        leaves = first if isinstance(first, list | tuple) else [first]
        if not all(isinstance(each, torch.Tensor) and each.requires_grad for each in leaves):
            continue

        def call(*values: torch.Tensor, first: Any = first, rest: Any = rest, named: Any = named) -> Any:
            torch.manual_seed(0)
            return info.op(list(values) if isinstance(first, list | tuple) else values[0], *rest, **named)

        def passes(leaves: Any = leaves, call: Any = call) -> bool:
            try:
                return bool(gradcheck(call, list(leaves), fast_mode=True, check_batched_grad=False))
            except (RuntimeError, ValueError, NotImplementedError):
                return False

        expected = passes()
        with nhwc.kernels.use():
            assert passes() or not expected
