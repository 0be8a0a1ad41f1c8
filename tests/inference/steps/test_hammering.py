"""Every step of the engine on random requests between forbidden pages, in processes that a fault may end."""

from __future__ import annotations

import re
import signal
from typing import get_args

import pytest
from inference.steps import hammering
from inference.steps.drawing import DRAWS
from kernels import children

from nhwc.inference.operations import Operation
from nhwc.inference.steps import registry
from nhwc.kernels import native
from nhwc.kernels.native import build

#: A row of the input that is longer by a float than its guarded memory.
TOO_FAR = """
import torch
from nhwc.inference.operations import Copy
from inference.steps import hammering
from inference.steps.drawing import Drawn
hammering.import_every_step()
x, y = torch.ones(5, 3), torch.empty(5, 3)
drawn = Drawn(Copy(), (x,), y, x.double())
assert hammering.run_guarded(drawn, 0, 1, exact=False, at_end=True) == ("copy",)
assert torch.equal(x, y)
hammering.extent = lambda tensor: (tensor.data_ptr(), 4 * tensor.numel() - 4 * (tensor is {}))
print("unharmed", flush=True)
hammering.run_guarded(drawn, 0, 1, exact=False, at_end=True)
"""


def hammered(last: int, *options: str, environment: dict[str, str] | None = None) -> set[str]:
    """Run requests 0 to before ``last`` of every operation; the step functions that ran."""
    arguments = ["hammering", "0", str(last), *options]
    code = f"import sys; sys.argv = {arguments!r}; from inference.steps.hammering import main; main()"
    ran = children.script(code, environment)
    assert ran.returncode == 0, ran.stdout[-600:] + ran.stderr[-3000:]
    return set(re.findall(r"^ran (\w+): \d+ times$", ran.stdout, re.MULTILINE))


def exported() -> set[str]:
    """The step functions of the sources."""
    texts = (path.read_text(encoding="utf-8") for path in (build.SOURCES / "engine").glob("*.cpp"))
    return {name for text in texts for name in re.findall(r"^NHWC_STEP\((\w+),", text, re.MULTILINE)}


def test_every_operation_is_drawn() -> None:
    hammering.import_every_step()
    assert set(DRAWS) == set(get_args(Operation))
    assert set(registry._ALGORITHMS) <= set(DRAWS)


@pytest.mark.parametrize("operand", ["x", "y"])
def test_the_guards_end_a_process_that_goes_too_far(operand: str) -> None:
    ran = children.script(TOO_FAR.format(operand))
    assert ran.stdout == "unharmed\n", ran.stderr
    assert ran.returncode == -signal.SIGSEGV


def test_a_few_requests_between_forbidden_pages() -> None:
    assert hammered(6, "guarded") <= exported()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("instruction_set", build.instruction_sets())
def test_no_step_leaves_its_operands(instruction_set: str) -> None:
    assert native.is_available(), native.status().reason
    in_order = list(build.instruction_sets())
    if in_order.index(instruction_set) > in_order.index(native.status().instruction_set):
        pytest.skip("this processor lacks it")
    assert hammered(150, "guarded", environment={"NHWC_INSTRUCTION_SET": instruction_set}) == exported()
