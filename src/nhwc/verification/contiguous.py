"""The runs in contiguous format and in float64 that every variant is compared with, and how steady they are."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from nhwc.errors import ModelError
from nhwc.progress import Progress
from nhwc.proof import ResultError
from nhwc.recorder.run import first_line
from nhwc.variants.precision import DTYPES
from nhwc.verification.distance import distance, plain
from nhwc.verification.judge import Baseline
from nhwc.verification.nonfinite import notes_of
from nhwc.verification.nudge import Rounding, nudge
from nhwc.verification.run import Results, StepError, Subject, run
from nhwc.verification.structure import Structure
from nhwc.verification.tape import Tape

CONTIGUOUS = "contiguous"
#: Contiguous runs with moved values before a result is called diverged: the last is off by 32 roundings in every sum.
MOST_NUDGES = 6
#: Two runs further apart than this are not apart by rounding: in float64, and in the model's own dtype.
_NOISE_DOUBLE, _NOISE = 1e-6, 1e-3


@dataclass
class Base:
    """What the variants of one precision are compared with."""

    spec: str
    baseline: Baseline
    structure: Structure
    rounding: float
    nudges: int = 0


@dataclass
class ContiguousRuns:
    """Contiguous format in every precision that a variant asks for, with the errors that it has by chance.

    notes: sentences for the report. unsteady: why nothing can be compared, empty where something can.
    """

    subject: Subject
    factor: float
    notes: list[str] = field(default_factory=list)
    tape: Tape = field(default_factory=Tape)
    unsteady: str = ""
    _bases: dict[str, Base] = field(default_factory=dict)
    _reference: Results | None = None

    def run(self, tell: Progress, total: int) -> None:
        """Run the model twice as it is and once in float64; raises ModelError where it raises."""
        tell("run contiguous", 0, total)
        structure = Structure()
        first = self._contiguous_run(CONTIGUOUS, self.tape.recording(), structure)
        if not first.tensors:
            raise ModelError("the model returns no tensor: there is nothing to verify")
        tell("run contiguous again", 1, total)
        second = self._contiguous_run(CONTIGUOUS, self.tape.replaying())
        missed = self.tape.mismatch
        tell("run in float64", 2, total)
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
            self.unsteady = "no result of the model is finite in contiguous format, so that there is nothing to compare"
            return
        self._check_steady(base, first, second, missed)
        self._check_reference(base)

    def base_of(self, spec: str) -> Base:
        """The contiguous variant of one precision (\"contiguous+bf16\"), run where it has not been yet."""
        if spec not in self._bases:
            structure = Structure()
            results = self._contiguous_run(spec, self.tape.replaying(), structure)
            precision = DTYPES.get(spec.partition("+")[2])
            rounding = torch.finfo(precision).eps if precision is not None else 0.0
            self._bases[spec] = self._base(spec, results, structure, rounding)
            self._check_reference(self._bases[spec])
        return self._bases[spec]

    def failing(self, base: Base, results: Results) -> tuple[ResultError, ...]:
        """What fails even after contiguous runs with nudged values have told what happens by chance."""
        while True:
            failed = tuple(each for each in base.baseline.judge(results) if not each.passed)
            if not failed or base.nudges >= MOST_NUDGES or all(each.limit == 0.0 for each in failed):
                return failed
            moved = self._nudged(base)
            if moved is not None:
                base.baseline.widen(moved)

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

    def _base(self, spec: str, results: Results, structure: Structure, rounding: float) -> Base:
        rounding = max(rounding, self._coarsest())
        return Base(spec, Baseline(results, self._reference, self.factor, rounding), structure, rounding)

    def _coarsest(self) -> float:
        """The greatest epsilon among the floating parameters and inputs."""
        subject = self.subject
        leaves = [*subject.model.parameters(), *tree_leaves((subject.inputs, dict(subject.keywords)))]
        dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()}
        return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)

    def _check_steady(self, base: Base, first: Results, second: Results, missed: str) -> None:
        """Two contiguous runs must agree: in every bit, else within rounding, which then counts as chance."""
        if missed:
            self.unsteady = f"the model is not deterministic: run again in contiguous format, {missed}"
            return
        if all(_same(first.tensors[key], second.tensors.get(key)) for key in first.tensors):
            return
        # noise of rounding is a billion times smaller in float64; a model that changes by itself changes there as much
        again = self._float64() if self._reference is not None else None
        unsteady = _unsteady(first, second, self._reference, again)
        if unsteady:
            self.unsteady = f"the model is not deterministic: run twice in the same format, {unsteady} differs"
            self.unsteady += draws_unsaid(self.tape)
            return
        base.baseline.widen(second)
        self.notes.append("two contiguous runs differ by rounding: that counts as what happens by chance")

    def _check_reference(self, base: Base) -> None:
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

    def _nudged(self, base: Base) -> Results | None:
        """One more contiguous run, its values moved by twice as many roundings as before; None where it raises."""
        base.nudges += 1
        change = functools.partial(nudge, seed=base.nudges, rounding=base.rounding)
        rounding = Rounding(base.nudges, 2.0 ** (base.nudges - 1))
        try:
            return run(self.subject, base.spec, self.tape.replaying(), change=change, watch=lambda _setup: rounding)
        except StepError:
            return None


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


def _size(value: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(plain(value).double()))


def _same(a: torch.Tensor, b: torch.Tensor | None) -> bool:
    if b is None or a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return b is not None and a.layout is b.layout and a.layout is not torch.strided
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _is_some(mask: torch.Tensor | None) -> bool:
    return mask is None or bool(mask.any())


def draws_unsaid(tape: Tape) -> str:
    """What draws random numbers without saying so, in brackets; empty where nothing does."""
    return f" ({', '.join(tape.own)} draws from torch's generator without the tag that says so)" if tape.own else ""
