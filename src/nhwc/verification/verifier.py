"""A whole verification: every variant against the contiguous runs, and where one diverges."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from nhwc.model import Phase
from nhwc.progress import Progress
from nhwc.proof import Divergence, Outcome, ResultError, VariantProof, Verification
from nhwc.recorder.run import first_line
from nhwc.recorder.state import StepGuard
from nhwc.variants import parse
from nhwc.variants.kernels import kernels_of
from nhwc.variants.registry import Kind
from nhwc.verification.contiguous import CONTIGUOUS, Base, ContiguousRuns, draws_unsaid
from nhwc.verification.judge import LOW_EPSILON
from nhwc.verification.locate import Locator
from nhwc.verification.operators import Fault
from nhwc.verification.reproduction import is_overridden, write_reproducer
from nhwc.verification.run import StepError, Subject, out_of_memory, run
from nhwc.verification.structure import Structure

#: An error this many times its limit, and this great, is not explained by a discontinuity that no nudged run met.
_BEYOND, _BEYOND_ERROR = 1e3, 1e-2


@dataclass
class Verifier:
    """Verifies ``subject``; every run is on a copy of its own.

    factor: how many times the contiguous error a variant's may be. reproducer: the folder for the file that shows a
    fault alone, None to write none.
    """

    subject: Subject
    factor: float
    reproducer: Path | None
    tell: Progress
    _contiguous: ContiguousRuns = field(init=False)

    def __post_init__(self) -> None:
        self._contiguous = ContiguousRuns(self.subject, self.factor)

    def verify(self, specs: Sequence[str], target: str) -> Verification:
        """Raises ModelError where the model raises in contiguous format, VariantError and RegistryError for a variant
        that cannot be had, ConversionError where the model refuses a memory format."""
        started = time.monotonic()
        for spec in specs:
            parse(spec, self.subject.device)
        total = len(specs) + 3
        with StepGuard():
            self._contiguous.run(self.tell, total)
            proofs = []
            for place, spec in enumerate(specs):
                self.tell(f"run {spec}", place + 3, total)
                proofs.append(replace(self._prove(spec), kernels=kernels_of(spec, self.subject.device)))
            self.tell("verified", total, total)
        return Verification(
            target,
            self.subject.train,
            self.factor,
            tuple(proofs),
            str(self.subject.device),
            str(torch.__version__),
            time.monotonic() - started,
            tuple(self._contiguous.notes),
        )

    def _prove(self, spec: str) -> VariantProof:
        if self._contiguous.unsteady:
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, self._contiguous.unsteady)
        parts = parse(spec, self.subject.device)
        # what a part calls in the model's place has no operators and modules to compare
        compiled = any(part.kind is Kind.COMPILATION or part.alone for part in parts)
        if compiled and self._contiguous.tape.draws:
            reason = "a compiled model draws its own random numbers, which cannot be replayed"
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, reason)
        base = self._contiguous.base_of(
            "+".join([CONTIGUOUS, *(part.name for part in parts if part.kind is Kind.PRECISION)])
        )
        structure = Structure()
        try:
            if compiled:  # a mode of ours would keep torch.compile from compiling
                results = run(self.subject, spec)
            else:
                results = run(self.subject, spec, self._contiguous.tape.replaying(), watch=lambda _setup: structure)
        except StepError as error:
            return self._raised(spec, base, error, compiled)
        if not compiled and self._contiguous.tape.mismatch:
            return VariantProof(
                spec, spec, Outcome.NOT_COMPARABLE, f"randomness cannot be replayed: {self._contiguous.tape.mismatch}"
            )
        failed = self._contiguous.failing(base, results)
        judged = base.baseline.judge(results)
        suspects = set() if compiled else structure.suspects(base.structure)
        if failed:
            return self._diverged(spec, base, judged, failed, compiled)
        # limits that nudged runs or a coarse dtype have widened may hide a fault, which the operators alone still show
        wide = bool(base.nudges) or base.rounding >= LOW_EPSILON
        if suspects or (wide and not compiled):
            found = self._locator(base).operator(spec)
            fault = found.fault
            if fault is not None and not fault.by_strides and (wide or str(fault.func) in suspects):
                divergence = self._reproduced(spec, found.divergence, fault)
                reason = f"every result is within its limit, but {fault.call.operator} is at fault"
                return VariantProof(spec, spec, Outcome.DIVERGED, reason, judged, divergence)
        return VariantProof(spec, spec, Outcome.PASSED, _passing(judged), judged)

    def _diverged(
        self,
        spec: str,
        base: Base,
        judged: tuple[ResultError, ...],
        failed: tuple[ResultError, ...],
        compiled: bool,
    ) -> VariantProof:
        worst = max(failed, key=lambda each: each.error / each.limit if each.limit else float("inf"))
        reason = f"{worst.title}: {worst.reason}"
        if len(failed) > 1:
            reason += f"; {len(failed)} of {len(judged)} results differ"
        if any(part.alone for part in parse(spec)):
            return VariantProof(spec, spec, Outcome.DIVERGED, reason, judged)
        eager = "+".join(part.name for part in parse(spec) if part.kind is not Kind.COMPILATION)
        if compiled and not self._fails_too(eager, base):
            divergence = Divergence(
                "torch.compile", "", None, _phase_of(failed), (), (), f"{eager} without torch.compile agrees"
            )
            return VariantProof(spec, spec, Outcome.DIVERGED, reason, judged, divergence)
        locator = self._locator(base)
        found = locator.operator(eager)
        if self._contiguous.tape.own and found.fault is None:
            return VariantProof(
                spec,
                spec,
                Outcome.NOT_COMPARABLE,
                f"the model draws random numbers{draws_unsaid(self._contiguous.tape)}",
                judged,
            )
        if found.unsteady and found.fault is None:
            unsteady = f"the operator {found.unsteady[0]} is not deterministic: repeated on the same values it differs"
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, unsteady, judged)
        divergence_ = found.divergence or locator.module(eager, failed)
        unexplained = divergence_ is not None and (divergence_.phase is Phase.FORWARD or _is_beyond(worst))
        if found.fault is None and not unexplained:
            has_relu = any("relu" in name or "threshold" in name for name in base.structure.shared)
            such_as = (
                "a ReLU at zero, a batch norm over few values" if has_relu else "such as a batch norm over few values"
            )
            reason += (
                "; every operator and module agrees on the same values, so that a discontinuity may have amplified "
                f"rounding ({such_as}): verify with a larger batch"
            )
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, reason, judged, divergence_)
        return VariantProof(
            spec, spec, Outcome.DIVERGED, reason, judged, self._reproduced(spec, divergence_, found.fault)
        )

    def _fails_too(self, spec: str, base: Base) -> bool:
        try:
            return bool(self._contiguous.failing(base, run(self.subject, spec, self._contiguous.tape.replaying())))
        except StepError:
            return True

    def _raised(self, spec: str, base: Base, error: StepError, compiled: bool) -> VariantProof:
        if out_of_memory(error.original):
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, error.sentence)
        reason = f"{error.sentence}; in contiguous format it does not"
        if compiled:
            return VariantProof(spec, spec, Outcome.RAISED, reason)
        found = self._locator(base).operator(spec)
        if found.divergence is not None and first_line(error.original) in found.divergence.reason:
            reason = f"the model raised {type(error.original).__name__}; in contiguous format it does not"
        return VariantProof(
            spec, spec, Outcome.RAISED, reason, (), self._reproduced(spec, found.divergence, found.fault)
        )

    def _locator(self, base: Base) -> Locator:
        return Locator(self.subject, self._contiguous.tape, base.spec, self.factor, base.rounding)

    def _reproduced(self, spec: str, divergence: Divergence | None, fault: Fault | None) -> Divergence | None:
        if divergence is None or fault is None or self.reproducer is None:
            return divergence
        self.tell(f"write what reproduces {divergence.operator}", 0, 1)
        written = write_reproducer(fault, self.reproducer, self.factor)
        if isinstance(written, str):
            self._contiguous.notes.append(f"{spec}: no file reproduces {divergence.operator}: {written}")
            return divergence
        if not written.reproduces and is_overridden(fault.func):
            self._contiguous.notes.append(
                f"{spec}: a kernel of {divergence.operator} was overridden in this process; the file does not show it"
            )
        return replace(divergence, reproducer=str(written.path), reproduces=written.reproduces)


def _is_beyond(failed: ResultError) -> bool:
    """Whether a result is off by more than amplified rounding: nudged runs, which set its limit, moved it far less."""
    return failed.error > max(_BEYOND * failed.limit, _BEYOND_ERROR) and (failed.limit > 0 or math.isinf(failed.error))


def _phase_of(failed: Sequence[ResultError]) -> Phase:
    return Phase.FORWARD if any(each.group == "output" for each in failed) else Phase.BACKWARD


def _passing(judged: Sequence[ResultError]) -> str:
    worst = max((each.error / each.limit for each in judged if each.limit), default=0.0)
    return f"every result is within its limit, the nearest at {worst:.0%} of it" if worst else "every result agrees"
