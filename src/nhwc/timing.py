"""The frozen data of a paired measurement: samples of every variant, ratios with their intervals, verdicts.

A *round* runs every variant once, in random order; the samples of one round are paired. Ratios say how many times
faster than the baseline a variant is: its time goes into the baseline's, so that above 1 is faster.
Units are in the names: ``_ms`` milliseconds per step, ``_s`` seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum

#: What is measured: forward passes in evaluation mode, or whole training steps.
MODES = ("inference", "training")


class Verdict(StrEnum):
    """What the interval of a ratio says; unstable: the machine changed under the measurement, so nothing is said."""

    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"
    UNSTABLE = "unstable machine"


class Stop(StrEnum):
    """Why a measurement ended."""

    NARROW = "every interval is narrow enough"
    BUDGET = "the time budget ended"
    ROUNDS = "the greatest number of rounds was reached"
    ALONE = "no variant besides the baseline was left"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Baseline time over variant time: estimate and the bounds of its confidence interval from ``pairs`` rounds."""

    estimate: float
    low: float
    high: float
    pairs: int

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the ratio: 0.02 is plus or minus 2 %."""
        return (self.high / self.low) ** 0.5 - 1.0 if self.low > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class VariantTiming:
    """One variant: raw samples in milliseconds per step, one a round, and what was made of them.

    spec: the registered parts it is made of ("channels_last+bf16"); "module" for a model of the user's.
    peak_bytes: the most that a step holds in tensors at once above what there was before it; None where not measured.
    warmup_ms: the steps before the first round, the first one with compilation.
    calls: steps that one sample averages. ratio: None for the baseline and for what failed.
    kernels: those of nhwc.kernels that were on during its steps, by name; None where not set up, or not told.
    failure: why it did not run, one sentence; such a variant has no samples.
    """

    name: str
    spec: str
    samples_ms: tuple[float, ...] = ()
    warmup_ms: tuple[float, ...] = ()
    peak_bytes: int | None = None
    calls: int = 1
    ratio: Ratio | None = None
    verdict: Verdict | None = None
    failure: str = ""
    kernels: tuple[str, ...] | None = None

    @property
    def median_ms(self) -> float | None:
        """Median milliseconds per step; context, not proof: times move with the machine, ratios do not."""
        return statistics.median(self.samples_ms) if self.samples_ms else None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where and how a measurement was made, enough to refuse to compare what cannot be compared.

    inputs: (shape, dtype) of every tensor among the arguments. versions: (package, version), torch first.
    allocator: what serves the memory of tensors ("glibc malloc", "tcmalloc", "CUDA caching allocator").
    settings: (name, value) of what else decides speed: instruction set, TF32, cudnn.benchmark, deterministic mode.
    """

    device: str
    processor: str
    cores: float
    threads: int
    system: str
    allocator: str
    versions: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What else the machine did during a measurement, in cores' worth of time. cores: here; threads: those we used.

    others: busy for other processes; stolen: taken by the hypervisor. throttled: how much of the wall time a CPU limit
    held this process back, a share.
    """

    cores: float
    threads: int
    others: float = 0.0
    stolen: float = 0.0
    throttled: float = 0.0

    @property
    def is_crowded(self) -> bool:
        """Whether other processes left fewer cores than there are threads, by more than a tenth of a core."""
        return self.others > 0.15 and self.others + self.threads > self.cores + 0.1


@dataclass(frozen=True)
class Benchmark:
    """A whole measurement of one model.

    mode: "inference" or "training". batch: samples per step, None where the inputs do not tell.
    precision: the half width at which an interval is narrow enough. confidence: of every interval, one at a time.
    margin: what every interval is widened by on either side, a share, for what differs from process to process.
    unstable: sentences on what moved under the measurement. notes: sentences on what else a reader should know.
    load: None where the system does not tell.
    seconds: wall time of it all. started: date and time with zone, ISO 8601.
    """

    target: str
    mode: str
    baseline: str
    variants: tuple[VariantTiming, ...]
    conditions: Conditions
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    batch: int | None
    seed: int
    precision: float
    margin: float
    confidence: float
    budget_s: float
    stopped: Stop
    seconds: float
    started: str
    unstable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    load: Load | None = None

    def variant(self, name: str) -> VariantTiming:
        """The variant of that name; KeyError where there is none."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise KeyError(name)

    def throughput(self, variant: VariantTiming | str) -> float | None:
        """Samples per second at the median of a variant, given by name or itself; None without a batch or a time."""
        ms = (self.variant(variant) if isinstance(variant, str) else variant).median_ms
        return None if self.batch is None or not ms else 1000.0 * self.batch / ms
