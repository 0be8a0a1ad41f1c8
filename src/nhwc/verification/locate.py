"""Where a variant goes wrong: its run repeated under the comparer of operators, then of modules."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nhwc.model import Phase, Source
from nhwc.proof import Divergence, ResultError
from nhwc.recorder.modules import ModuleStack
from nhwc.recorder.optimizers import OptimizerWatch
from nhwc.recorder.storage import TensorReader
from nhwc.variants import Setup
from nhwc.verification.modules import Visit, first_difference, source_of, visits_of
from nhwc.verification.nudge import nudge
from nhwc.verification.operators import Comparer, Fault
from nhwc.verification.run import StepError, Subject, named_inputs, run
from nhwc.verification.tape import Tape


@dataclass
class Found:
    """fault: the operator call, None where no operator shows the fault. unsteady: operators that are not deterministic.

    divergence: what is told of it, None where nothing was found.
    """

    fault: Fault | None = None
    divergence: Divergence | None = None
    unsteady: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Locator:
    """Looks for what makes a variant of ``subject`` diverge from ``base``, the contiguous variant of its precision."""

    subject: Subject
    tape: Tape
    base: str
    factor: float
    rounding: float

    def operator(self, spec: str) -> Found:
        """The first operator call at fault."""
        kept: list[Comparer] = []

        @contextlib.contextmanager
        def comparing(setup: Setup) -> Iterator[None]:
            tensors = TensorReader()
            for name, tensor in [*setup.model.named_parameters(), *setup.model.named_buffers(), *named_inputs(setup)]:
                tensors.give_name(tensor, name)
            with ModuleStack(setup.model) as modules:
                comparer = Comparer(modules, tensors, self.factor, self.tape.own)
                kept.append(comparer)
                watch = OptimizerWatch(comparer.enter_optimizer, lambda _optimizer: comparer.leave_optimizer())
                with watch, comparer:
                    yield

        with contextlib.suppress(StepError):
            run(self.subject, spec, self.tape.replaying(), watch=comparing)
        comparer = kept[0]
        fault = comparer.fault or comparer.raised or comparer.by_strides
        return Found(fault, _told(fault) if fault is not None else None, comparer.unsteady)

    def module(self, spec: str, failed: tuple[ResultError, ...]) -> Divergence | None:
        """The first module whose outputs differ although its inputs agree, or whose parameters' gradients do."""
        theirs = self._visits(spec)
        moved = self._visits(self.base, functools.partial(nudge, seed=1, rounding=self.rounding))
        visit = first_difference(self._visits(self.base), theirs, moved)
        if visit is not None:
            kind = type(visit.module).__name__
            reason = (
                f"the module {kind} turns inputs that agree into outputs that do not, although no operator call does: "
                "it reads memory past the dispatcher (numpy, data_ptr, a library of its own)"
            )
            return Divergence(kind, visit.path, source_of(visit.module), Phase.FORWARD, (), (), reason)
        gradients = {each.name.rpartition(".")[0]: each for each in failed if each.group == "gradient"}
        last = next((visit for visit in reversed(theirs) if visit.path in gradients), None)
        if last is None:
            return None
        kind = type(last.module).__name__
        reason = (
            f"the outputs of all modules agree; the first gradient to differ, backwards, is {gradients[last.path].name}"
        )
        return Divergence(kind, last.path, source_of(last.module), Phase.BACKWARD, (), (), reason)

    def _visits(self, spec: str, change: Callable[[Setup], None] | None = None) -> list[Visit]:
        visits: list[Visit] = []
        with contextlib.suppress(StepError):
            run(self.subject, spec, self.tape.replaying(), change=change, watch=lambda setup: visits_of(setup, visits))
        return visits


def _told(fault: Fault) -> Divergence:
    call, result = fault.call, fault.result
    source: Source | None = call.source
    return Divergence(
        call.operator,
        call.module,
        source,
        call.phase,
        call.inputs,
        call.outputs,
        fault.reason,
        None if result is None else result.error,
        None if result is None else result.contiguous_error,
    )
