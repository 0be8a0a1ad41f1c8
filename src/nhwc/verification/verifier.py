"""A whole verification: the contiguous runs, float64, every variant, and where one diverges."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from nhwc.errors import ModelError
from nhwc.model import Phase
from nhwc.proof import Divergence, Outcome, ResultError, VariantProof, Verification
from nhwc.recorder.run import first_line
from nhwc.recorder.state import StepGuard
from nhwc.variants import parse
from nhwc.variants.registry import Kind
from nhwc.verification.distance import distance, plain
from nhwc.verification.judge import LOW_EPSILON, Baseline
from nhwc.verification.locate import Locator
from nhwc.verification.nonfinite import notes_of
from nhwc.verification.nudge import Rounding, nudge
from nhwc.verification.operators import Fault
from nhwc.verification.reproduction import is_overridden, write_reproducer
from nhwc.verification.run import Results, StepError, Subject, out_of_memory, run
from nhwc.verification.structure import Structure
from nhwc.verification.tape import Tape

Progress = Callable[[str, int, int], None]

CONTIGUOUS = "contiguous"
#: Contiguous runs with moved values before a result is called diverged: the last is off by 32 roundings in every sum.
MOST_NUDGES = 6
#: Two runs further apart than this are not apart by rounding: in float64, and in the model's own dtype.
_NOISE_DOUBLE, _NOISE = 1e-6, 1e-3
#: An error this many times its limit, and this great, is not explained by a discontinuity that no nudged run met.
_BEYOND, _BEYOND_ERROR = 1e3, 1e-2


@dataclass
class _Base:
    """What the variants of one precision are compared with."""

    spec: str
    baseline: Baseline
    structure: Structure
    rounding: float
    nudges: int = 0


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
    notes: list[str] = field(default_factory=list)
    tape: Tape = field(default_factory=Tape)
    _bases: dict[str, _Base] = field(default_factory=dict)
    _reference: Results | None = None
    _unsteady: str = ""

    def verify(self, specs: Sequence[str], target: str) -> Verification:
        """Raises ModelError where the model raises in contiguous format, VariantError and RegistryError for a variant
        that cannot be had, ConversionError where the model refuses a memory format."""
        started = time.monotonic()
        for spec in specs:
            parse(spec, self.subject.device)
        total = len(specs) + 3
        with StepGuard():
            self._run_contiguous(total)
            proofs = []
            for place, spec in enumerate(specs):
                self.tell(f"run {spec}", place + 3, total)
                proofs.append(self._prove(spec))
            self.tell("verified", total, total)
        return Verification(
            target,
            self.subject.train,
            self.factor,
            tuple(proofs),
            str(self.subject.device),
            torch.__version__,
            time.monotonic() - started,
            tuple(self.notes),
        )

    # -- contiguous format ------------------------------------------------------------------------------------------

    def _run_contiguous(self, total: int) -> None:
        self.tell("run contiguous", 0, total)
        structure = Structure()
        first = self._contiguous_run(CONTIGUOUS, self.tape.recording(), structure)
        if not first.tensors:
            raise ModelError("the model returns no tensor: there is nothing to verify")
        self.tell("run contiguous again", 1, total)
        second = self._contiguous_run(CONTIGUOUS, self.tape.replaying())
        missed = self.tape.mismatch
        self.tell("run in float64", 2, total)
        self._reference = self._float64()
        base = self._bases[CONTIGUOUS] = self._base(CONTIGUOUS, first, structure, 0.0)
        if self.tape.draws:
            count = len(self.tape.draws)
            calls = f"{count} operator call{'' if count == 1 else 's'}"
            self.notes.append(f"random numbers were drawn once, in {calls}, and replayed in every run")
        if self.tape.unverified:
            self.notes.append(
                f"not verified: {', '.join(self.tape.unverified)}; so that every run draws alike, what draws random "
                "numbers runs on contiguous copies of its operands"
            )
        self.notes += notes_of(base.baseline)
        if not any(_is_some(base.baseline.compared(key)) for key in first.tensors if first.tensors[key].numel()):
            self._unsteady = (
                "no result of the model is finite in contiguous format, so that there is nothing to compare"
            )
            return
        self._check_steady(base, first, second, missed)
        self._check_reference(base)

    def _contiguous_run(self, spec: str, tape: object, structure: Structure | None = None) -> Results:
        watch = None if structure is None else lambda _setup: structure
        try:
            return run(self.subject, spec, tape, watch=watch)  # type: ignore[arg-type]
        except StepError as error:
            raise ModelError(error.sentence) from error.original

    def _float64(self) -> Results | None:
        before = self.tape.mismatch
        try:
            found = run(self.subject, CONTIGUOUS, self.tape.replaying(), double=True)
            problem = self.tape.mismatch
        except (StepError, RuntimeError, TypeError, NotImplementedError) as error:
            original = error.original if isinstance(error, StepError) else error
            problem = f"{type(original).__name__}: {first_line(original)}"
        self.tape.mismatch = before
        if not problem:
            return found
        self.notes.append(f"no float64 reference ({problem}): everything is judged against contiguous format alone")
        return None

    def _base(self, spec: str, results: Results, structure: Structure, rounding: float) -> _Base:
        rounding = max(rounding, self._coarsest())
        return _Base(spec, Baseline(results, self._reference, self.factor, rounding), structure, rounding)

    def _coarsest(self) -> float:
        """The greatest epsilon among the floating parameters and inputs."""
        subject = self.subject
        leaves = [*subject.model.parameters(), *tree_leaves((subject.inputs, dict(subject.keywords)))]
        dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()}
        return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)

    def _check_steady(self, base: _Base, first: Results, second: Results, missed: str) -> None:
        """Two contiguous runs must agree: in every bit, else within rounding, which then counts as chance."""
        if missed:
            self._unsteady = f"the model is not deterministic: run again in contiguous format, {missed}"
            return
        if all(_same(first.tensors[key], second.tensors.get(key)) for key in first.tensors):
            return
        # noise of rounding is a billion times smaller in float64; a model that changes by itself changes there as much
        again = self._float64() if self._reference is not None else None
        unsteady = _unsteady(first, second, self._reference, again)
        if unsteady:
            self._unsteady = f"the model is not deterministic: run twice in the same format, {unsteady} differs"
            self._unsteady += _draws_unsaid(self.tape)
            return
        base.baseline.widen(second)
        self.notes.append("two contiguous runs differ by rounding: that counts as what happens by chance")

    def _check_reference(self, base: _Base) -> None:
        """Float64 is no reference where the model does something else there."""
        doubtful = base.baseline.doubtful()
        if not doubtful or self._reference is None:
            return
        moved = [found for _ in range(2) if (found := self._nudged(base)) is not None]
        base.baseline.distrust(doubtful, moved)
        if base.baseline.distrusted:
            names = sorted(name for _, name in base.baseline.distrusted)
            told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            self.notes.append(
                f"{base.spec}: float64 gives something else than rounding explains for {told}; judged against "
                "contiguous format there"
            )

    # -- variants ---------------------------------------------------------------------------------------------------

    def _prove(self, spec: str) -> VariantProof:
        if self._unsteady:
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, self._unsteady)
        parts = parse(spec, self.subject.device)
        compiled = any(part.kind is Kind.COMPILATION for part in parts)
        if compiled and self.tape.draws:
            reason = "a compiled model draws its own random numbers, which cannot be replayed"
            return VariantProof(spec, spec, Outcome.NOT_COMPARABLE, reason)
        base = self._base_of("+".join([CONTIGUOUS, *(part.name for part in parts if part.kind is Kind.PRECISION)]))
        structure = Structure()
        try:
            if compiled:  # a mode of ours would keep torch.compile from compiling
                results = run(self.subject, spec)
            else:
                results = run(self.subject, spec, self.tape.replaying(), watch=lambda _setup: structure)
        except StepError as error:
            return self._raised(spec, base, error, compiled)
        if not compiled and self.tape.mismatch:
            return VariantProof(
                spec, spec, Outcome.NOT_COMPARABLE, f"randomness cannot be replayed: {self.tape.mismatch}"
            )
        failed = self._failing(base, results)
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

    def _base_of(self, spec: str) -> _Base:
        if spec not in self._bases:
            structure = Structure()
            results = self._contiguous_run(spec, self.tape.replaying(), structure)
            precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec.partition("+")[2])
            rounding = torch.finfo(precision).eps if precision is not None else 0.0
            self._bases[spec] = self._base(spec, results, structure, rounding)
            self._check_reference(self._bases[spec])
        return self._bases[spec]

    def _failing(self, base: _Base, results: Results) -> tuple[ResultError, ...]:
        """What fails even after contiguous runs with nudged values have told what happens by chance."""
        while True:
            failed = tuple(each for each in base.baseline.judge(results) if not each.passed)
            if not failed or base.nudges >= MOST_NUDGES or all(each.limit == 0.0 for each in failed):
                return failed
            moved = self._nudged(base)
            if moved is not None:
                base.baseline.widen(moved)

    def _nudged(self, base: _Base) -> Results | None:
        """One more contiguous run, its values moved by twice as many roundings as before; None where it raises."""
        base.nudges += 1
        change = functools.partial(nudge, seed=base.nudges, rounding=base.rounding)
        rounding = Rounding(base.nudges, 2.0 ** (base.nudges - 1))
        try:
            return run(self.subject, base.spec, self.tape.replaying(), change=change, watch=lambda _setup: rounding)
        except StepError:
            return None

    def _diverged(
        self,
        spec: str,
        base: _Base,
        judged: tuple[ResultError, ...],
        failed: tuple[ResultError, ...],
        compiled: bool,
    ) -> VariantProof:
        worst = max(failed, key=lambda each: each.error / each.limit if each.limit else float("inf"))
        reason = f"{worst.title}: {worst.reason}"
        if len(failed) > 1:
            reason += f"; {len(failed)} of {len(judged)} results differ"
        eager = "+".join(part.name for part in parse(spec) if part.kind is not Kind.COMPILATION)
        if compiled and not self._fails_too(eager, base):
            divergence = Divergence(
                "torch.compile", "", None, _phase_of(failed), (), (), f"{eager} without torch.compile agrees"
            )
            return VariantProof(spec, spec, Outcome.DIVERGED, reason, judged, divergence)
        locator = self._locator(base)
        found = locator.operator(eager)
        if self.tape.own and found.fault is None:
            return VariantProof(
                spec, spec, Outcome.NOT_COMPARABLE, f"the model draws random numbers{_draws_unsaid(self.tape)}", judged
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

    def _fails_too(self, spec: str, base: _Base) -> bool:
        try:
            return bool(self._failing(base, run(self.subject, spec, self.tape.replaying())))
        except StepError:
            return True

    def _raised(self, spec: str, base: _Base, error: StepError, compiled: bool) -> VariantProof:
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

    def _locator(self, base: _Base) -> Locator:
        return Locator(self.subject, self.tape, base.spec, self.factor, base.rounding)

    def _reproduced(self, spec: str, divergence: Divergence | None, fault: Fault | None) -> Divergence | None:
        if divergence is None or fault is None or self.reproducer is None:
            return divergence
        self.tell(f"write what reproduces {divergence.operator}", 0, 1)
        written = write_reproducer(fault, self.reproducer, self.factor)
        if isinstance(written, str):
            self.notes.append(f"{spec}: no file reproduces {divergence.operator}: {written}")
            return divergence
        if not written.reproduces and is_overridden(fault.func):
            self.notes.append(
                f"{spec}: a kernel of {divergence.operator} was overridden in this process; the file does not show it"
            )
        return replace(divergence, reproducer=str(written.path), reproduces=written.reproduces)


def _unsteady(first: Results, second: Results, reference: Results | None, again: Results | None) -> str:
    """The name of a result that changes by more than rounding from run to run, empty where none does."""
    for key, value in first.tensors.items():
        other = second.tensors.get(key)
        if other is None or other.shape != value.shape:
            return key[1]
        noise = distance(other, value)
        if again is None or reference is None or key not in reference.tensors or key not in again.tensors:
            if noise.rms > _NOISE:
                return key[1]
            continue
        apart = distance(again.tensors[key], reference.tensors[key])
        # gradients that are zero but for rounding are far apart in every dtype, but a billion times nearer in float64
        if apart.rms > _NOISE_DOUBLE and 0 < noise.rms * _size(value) < apart.rms * _size(reference.tensors[key]) * 1e3:
            return key[1]
    return ""


def _is_beyond(failed: ResultError) -> bool:
    """Whether a result is off by more than amplified rounding: nudged runs, which set its limit, moved it far less."""
    return failed.error > max(_BEYOND * failed.limit, _BEYOND_ERROR) and (failed.limit > 0 or math.isinf(failed.error))


def _size(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(plain(value).double()))


def _same(a: torch.Tensor, b: torch.Tensor | None) -> bool:
    if b is None or a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return b is not None and a.layout is b.layout and a.layout is not torch.strided
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _is_some(mask: torch.Tensor | None) -> bool:
    return mask is None or bool(mask.any())


def _draws_unsaid(tape: Tape) -> str:
    return f" ({', '.join(tape.own)} draws from torch's generator without the tag that says so)" if tape.own else ""


def _phase_of(failed: Sequence[ResultError]) -> Phase:
    return Phase.FORWARD if any(each.group == "output" for each in failed) else Phase.BACKWARD


def _passing(judged: Sequence[ResultError]) -> str:
    worst = max((each.error / each.limit for each in judged if each.limit), default=0.0)
    return f"every result is within its limit, the nearest at {worst:.0%} of it" if worst else "every result agrees"
