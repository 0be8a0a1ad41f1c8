"""No compiled kernel touches a byte before its operands or behind them: the kernel tests between forbidden pages."""

from __future__ import annotations

import re
import signal

import pytest
from kernels import children

from nhwc.kernels import native
from nhwc.kernels.native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: One row more than the operands have, or a second row that lies before the first.
FAULTS = {
    "a read behind the end": "call(4, x, 8, wide, 8, 4, 8)",
    "a write behind the end": "call(4, wide, 8, x, 8, 4, 8)",
    "a read before the beginning": "call(4, x, -8, wide, 8, 2, 8)",
}
FAULT = """
import torch
from kernels import guarding
from nhwc.kernels import native
guarding.install()
x, wide = torch.ones(3, 8), torch.ones(4, 8)
call = native.Function("copy_rows", "iplplll")
call(4, x, 8, wide, 8, 3, 8)
print("unharmed", flush=True)
{}
"""
#: Within a page of an operand nothing faults: the filling must show it.
BESIDE = """
import ctypes
import torch
from kernels.guarding import Guarded
x = torch.ones(3)
copy = Guarded(x.data_ptr(), 12, at_end=True)
assert copy.is_clean() and not copy.is_written()
ctypes.memset(copy.address - 1, 0, 1)
assert not copy.is_clean() and not copy.is_written()
"""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_guards_end_a_process_that_goes_too_far(fault: str) -> None:
    ran = children.script(FAULT.format(fault))
    assert ran.stdout == "unharmed\n", ran.stderr
    assert ran.returncode == -signal.SIGSEGV or "copy_rows writes beside an operand" in ran.stderr


def test_the_guards_see_what_is_written_beside_an_operand() -> None:
    ran = children.script(BESIDE)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("instruction_set", build.instruction_sets())
def test_no_kernel_leaves_its_operands(instruction_set: str) -> None:
    assert native.is_available(), native.status().reason
    in_order = list(build.instruction_sets())
    if in_order.index(instruction_set) > in_order.index(native.status().instruction_set):
        pytest.skip("this processor lacks it")
    ran = children.kernel_tests("-p", "kernels.guarding", environment={"NHWC_INSTRUCTION_SET": instruction_set})
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert set(re.findall(r"^guarded (\w+): \d+ calls$", ran.stdout, re.MULTILINE)) == children.exported()
