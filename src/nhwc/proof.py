"""The frozen data of a verification: how far every result of every variant lies from float64, and what diverges.

An *error* is the distance of a tensor from its float64 reference, relative to the size of the reference, so that
tensors of any scale compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nhwc.model import Phase, Source, TensorMeta


class Outcome(StrEnum):
    """What became of one variant.

    passed: every result is as near to float64 as in contiguous format, within the factor.
    diverged: a result is not. raised: it ends in an exception that contiguous format does not end in.
    not comparable: the model itself is not deterministic, not finite or has randomness that cannot be replayed.
    """

    PASSED = "passed"
    DIVERGED = "diverged"
    RAISED = "raised"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class ResultError:
    """One result (an output, a parameter's gradient, a buffer, an updated parameter) of one variant.

    group: "output", "gradient", "buffer" or "parameter". error, contiguous_error: relative distance from float64,
    the variant's and that of contiguous format. limit: what ``error`` may be. reason: one sentence where it fails.
    """

    group: str
    name: str
    error: float
    contiguous_error: float
    limit: float
    passed: bool
    reason: str = ""

    @property
    def title(self) -> str:
        """What a reader calls it: "output['aux']", "gradient of features.0.weight"."""
        return self.name if self.name.startswith(self.group) else f"{self.group} of {self.name}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operator call that answers differently in the other format, on the same input values.

    reason: one sentence on how the answers differ. error, contiguous_error: as for ResultError.
    reproducer: path of the file written for it, empty where none was. reproduces: whether that file, run alone,
    showed the fault; None where it was not run.
    """

    operator: str
    module: str
    source: Source | None
    phase: Phase
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    reason: str
    error: float | None = None
    contiguous_error: float | None = None
    reproducer: str = ""
    reproduces: bool | None = None


@dataclass(frozen=True, slots=True)
class VariantProof:
    """One variant: its outcome with one sentence on why, the results, and the first operator at fault if any.

    kernels: those of nhwc.kernels that were on during its run, by name; None where it was not told.
    """

    name: str
    spec: str
    outcome: Outcome
    reason: str
    results: tuple[ResultError, ...] = ()
    divergence: Divergence | None = None
    kernels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Verification:
    """A whole verification of one model.

    factor: how many times the contiguous error a variant's error may be. notes: sentences on what was replayed, on
    what could not be compared, on non-finite values that the model itself produces.
    """

    target: str
    training: bool
    factor: float
    variants: tuple[VariantProof, ...]
    device: str
    torch: str
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every variant passed."""
        return all(variant.outcome is Outcome.PASSED for variant in self.variants)
