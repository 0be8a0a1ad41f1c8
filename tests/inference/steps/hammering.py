"""Every candidate of random requests, on operands as they lie or between pages that nothing may touch.

A program of its own, since a fault ends its process: ``python -c "from inference.steps.hammering import main; main()"``
with the numbers of the first and last request per operation, and "guarded" for the pages. It prints what it is about to
run, so that the last line names the fault, and at the end the step functions that it ran.
"""

from __future__ import annotations

import ctypes
import importlib
import pkgutil
import random
import sys
from collections import Counter
from collections.abc import Sequence

import torch
from inference.running import relative_error, run_step
from inference.steps import drawing_rows  # noqa: F401 its draws
from inference.steps.drawing import DRAWS, Drawn
from kernels.guarding import Guarded, extent

from nhwc.inference import steps
from nhwc.inference.native import ABSOLUTE, ALIGNMENT_BYTES, Placed, Program, Step
from nhwc.inference.steps.registry import candidates

#: Winograd's F(4) has the largest error of all.
TOLERANCE = 2e-4
#: More candidates than these of one request are sampled.
MOST_CANDIDATES = 6


def import_every_step() -> None:
    for module in pkgutil.iter_modules(steps.__path__):
        importlib.import_module(f"{steps.__name__}.{module.name}")


class Guards:
    """Guarded copies of the operands of one request, of a step's constants and its scratch."""

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end
        self._copies: dict[tuple[int, int], Guarded] = {}

    def copy(self, address: int, size: int) -> Guarded:
        key = address, size
        if key not in self._copies:
            self._copies[key] = Guarded(address, size, self._at_end)
        return self._copies[key]

    def place(self, tensor: torch.Tensor) -> Placed:
        address, size = extent(tensor) or (0, 0)
        return Placed(ABSOLUTE, self.copy(address, size).address, tuple(tensor.shape), tuple(tensor.stride()))

    def relocate(self, step: Step) -> None:
        """Let a step's parameters name guarded copies of its constants: every field is 8 bytes, and an address one."""
        words = (ctypes.c_int64 * (ctypes.sizeof(step.parameters) // 8)).from_buffer(step.parameters)
        for place, word in enumerate(words):
            for each in step.constants:
                first, size = each.data_ptr(), each.numel() * each.element_size()
                if first <= word < first + size:
                    words[place] = self.copy(first, size).address + word - first

    def scratch(self, size: int) -> int:
        whole = torch.full((-(-max(size, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES // 4,), torch.nan)
        return self.copy(whole.data_ptr(), whole.numel() * 4).address

    def check(self, written: Sequence[tuple[int, int]]) -> None:
        for key, each in self._copies.items():
            assert each.is_clean(), "something was written beside an operand"
            assert key in written or not each.is_written(), "something was written to what is only read"


def run_guarded(drawn: Drawn, number: int, threads: int, exact: bool, at_end: bool) -> tuple[str, ...]:
    """Run candidate ``number`` of the request between forbidden pages; the result goes into the drawn output."""
    guards = Guards(at_end)
    step = candidates(drawn.request(guards.place, threads, exact))[number].build()
    guards.relocate(step)
    scratch = guards.scratch(step.scratch_bytes)
    Program([step]).run((ctypes.c_void_p * 2)(None, None), scratch, threads)
    output = guards.copy(*(extent(drawn.output) or (0, 0)))
    guards.check([key for key, each in guards._copies.items() if each.address == scratch or each is output])
    output.copy_back()
    return (step.function,)


def checked(drawn: Drawn, label: str, before: torch.Tensor) -> None:
    """The result, and that the gaps of its memory are as they were."""
    output = drawn.output
    memory = output.as_strided((before.numel(),), (1,))
    inside = torch.zeros(before.numel(), dtype=torch.bool)
    inside.as_strided(output.shape, output.stride()).fill_(True)
    assert torch.equal(memory.view(torch.int32)[~inside], before[~inside]), f"{label} writes between the rows"
    error = relative_error(output, drawn.exact)
    assert error < TOLERANCE, f"{label} is off by {error}"


def hammer(operation: type, seed: int, guarded: bool) -> list[str]:
    """Run every candidate of one random request, or a sample; the names of their step functions."""
    draw = random.Random(f"{operation.__name__} {seed}")
    torch.manual_seed(seed)
    drawn = DRAWS[operation](draw)
    threads, exact = draw.choice([1, 2, 5]), draw.random() < 0.3
    torch.set_num_threads(threads)
    found = candidates(drawn.request(Placed.constant, threads, exact))
    functions = []
    for number in _sample(draw, [each.label.split()[0] for each in found]):
        label = f"{operation.__name__} {seed}: {found[number].label}"
        sys.stdout.write(f"{label} {[(tuple(each.shape), each.stride()) for each in drawn.tensors]}\n")
        sys.stdout.flush()
        drawn.output.as_strided((extent(drawn.output)[1] // 4,), (1,)).fill_(torch.nan)
        before = drawn.output.as_strided((extent(drawn.output)[1] // 4,), (1,)).view(torch.int32).clone()
        for at_end in (False, True) if guarded else ():
            functions += run_guarded(drawn, number, threads, exact, at_end)
        if not guarded:
            step = found[number].build()
            run_step(step, threads)
            functions.append(step.function)
        checked(drawn, label, before)
    return functions


def _sample(draw: random.Random, families: list[str]) -> list[int]:
    """Places of at most MOST_CANDIDATES, one of each family first."""
    order = draw.sample(range(len(families)), len(families))
    first = {families[place]: place for place in order}
    chosen = [*first.values(), *(place for place in order if place not in first.values())]
    return sorted(chosen[:MOST_CANDIDATES])


def main() -> None:
    first, last, guarded = int(sys.argv[1]), int(sys.argv[2]), "guarded" in sys.argv
    import_every_step()
    counts: Counter[str] = Counter()
    for operation in DRAWS:
        for seed in range(first, last):
            counts.update(hammer(operation, seed, guarded))
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"ran {name}: {count} times\n")
