"""Compiles every program of Triton's that a list of calls runs, for two generations of GPUs, without one.

Run by test_triton.py in a process of its own. The calls come here in the place of a launch: with the arguments, and so
with the types and the numbers that are 1, that a launch would have had.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 the usual name

import nhwc
from nhwc.kernels import gpu
from nhwc.kernels.registry import Replacement
from nhwc.kernels.triton import programs

CAPABILITIES = (80, 90)
TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int8: "*i8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
compiled: set[str] = set()


def compile_instead(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """What stands in for JITFunction.run: None and 1 are constants to Triton, as the constexpr parameters are."""
    import triton
    from triton.backends.compiler import GPUTarget

    given = dict(zip([each.name for each in self.params], arguments, strict=False)) | options
    signature, constants = {}, {}
    for each in self.params:
        value = given[each.name]
        if each.is_constexpr or value is None or (type(value) is int and value == 1):
            signature[each.name], constants[each.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[each.name] = TYPES[value.dtype]
        else:
            assert type(value) is int, f"{each.name} is {value!r}"
            assert abs(value) < 2**31
            signature[each.name] = "i32"
    assert all(0 < size < (2**31, 65536)[place > 0] for place, size in enumerate(grid))
    for capability in CAPABILITIES:
        source = triton.compiler.ASTSource(self, signature, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert made.asm["cubin"]
        assert made.metadata.shared <= 48 << 10
    compiled.add(self.__name__)


def train(call: Callable[..., torch.Tensor], *shapes: tuple[int, ...], dtype: torch.dtype) -> None:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}
    operands = [torch.randn(shape, dtype=dtype) for shape in shapes]
    leaves = [each.to(memory_format=last.get(each.dim(), torch.contiguous_format)) for each in operands]
    result = call(*[each.requires_grad_() for each in leaves])
    torch.autograd.grad(result, leaves, torch.randn(result.shape, dtype=dtype))


def run_all(dtype: torch.dtype) -> None:
    train(lambda x, w: F.group_norm(x, 8, w, w), (1, 64, 40, 40), (64,), dtype=dtype)
    train(F.instance_norm, (2, 33, 5, 6, 7), dtype=dtype)
    train(lambda x: F.avg_pool3d(x, 3, 2, 1), (2, 33, 5, 6, 7), dtype=dtype)
    train(lambda x: F.avg_pool3d(x, 2, divisor_override=3), (2, 33, 5, 6, 7), dtype=dtype)
    train(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), (2, 33, 5, 6, 7), dtype=dtype)
    train(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 33, 6, 7), dtype=dtype)
    for mode in ("bilinear", "nearest"):
        for padding, aligned in (("zeros", False), ("border", True), ("reflection", False), ("reflection", True)):
            call = lambda x, grid: F.grid_sample(x, grid, mode, padding, aligned)  # noqa: B023, E731 called at once
            train(call, (2, 33, 6, 7), (2, 4, 4, 2), dtype=dtype)
        call = lambda x, grid: F.grid_sample(x, grid, mode, align_corners=True)  # noqa: B023, E731 called at once
        train(call, (2, 33, 6, 7, 8), (2, 4, 4, 4, 3), dtype=dtype)


def main() -> None:
    from triton.runtime.jit import JITFunction

    gpu.is_interpreted = lambda: True  # type: ignore[assignment] # the gates let tensors of the CPU through
    JITFunction.run = compile_instead
    for kernel in nhwc.kernels.kernels():
        for_cuda = [each for each in kernel.replacements if "CUDA" in each.key and "cudnn" not in each.operator]
        if for_cuda:
            composites = [each for each in kernel.replacements if each.key == "CompositeImplicitAutograd"]
            kernel.replacements[:] = composites + [
                Replacement(each.operator, each.key.replace("CUDA", "CPU"), each.run) for each in for_cuda
            ]
    with nhwc.kernels.use("group_norm", "instance_norm", "avg_pool3d", "adaptive_avg_pool", "grid_sample"):
        for dtype in (torch.float32, torch.bfloat16):
            run_all(dtype)
        train(lambda x, w: F.group_norm(x, 8, w), (1, 64, 40, 40), (64,), dtype=torch.float64)
    written = {
        name
        for each in pkgutil.iter_modules(programs.__path__)
        for name, value in vars(importlib.import_module(f"{programs.__name__}.{each.name}")).items()
        if isinstance(value, JITFunction) and not name.startswith("_")
    }
    assert compiled == written, f"not compiled: {written - compiled}"
    sys.stdout.write(f"every program was compiled: {', '.join(sorted(compiled))}\n")


if __name__ == "__main__":
    main()
