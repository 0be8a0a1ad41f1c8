"""The frozen data of a survey: operators of an installed torch, and what each does with the channels-last format.

A *result* counts where its format can be told: it has the rank of the input, more than one channel and more than one
pixel. Units are in the names: ``_ms`` milliseconds, ``_s`` seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nhwc.timing import Conditions, Ratio, Verdict


class Handling(StrEnum):
    """What an operator does with channels last, from the best to the worst.

    no format: no result has a format to keep. copies inside: nothing is lost, but more is copied between formats inside
    the operator than for contiguous inputs. refuses: raises where it does not for contiguous inputs.
    """

    KEEPS = "keeps"
    VIEW = "view"
    NO_FORMAT = "no format"
    COPIES = "copies inside"
    SOMETIMES = "sometimes loses"
    LOSES = "loses"
    REFUSES = "refuses"

    @property
    def is_problem(self) -> bool:
        """Whether channels last costs a copy, or does not work, here."""
        return self in (Handling.COPIES, Handling.SOMETIMES, Handling.LOSES, Handling.REFUSES)

    @property
    def rank(self) -> int:
        """Its place in the order from the best to the worst."""
        return list(Handling).index(self)


class Truth(StrEnum):
    """How values for channels-last inputs stand against float64 and against those for contiguous ones.

    random: it draws random numbers, which follow the order in memory. not compared: nothing to compare, or memory that
    is not initialised.
    """

    RIGHT = "right"
    RANDOM = "random"
    UNCOMPARED = "not compared"
    WRONG = "wrong"


class Mode(StrEnum):
    """How an operator is run: as it is, with the kernels of nhwc.kernels switched on, or through torch.compile."""

    EAGER = "eager"
    KERNELS = "kernels"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction of an operator over all samples: forward results, or gradients of its inputs.

    kept, lost, viewed: results. refused: samples that raised. copied_bytes: copied between two dense formats inside the
    operator, over all samples; contiguous_copied_bytes: the same for contiguous inputs. copiers: the operators that
    copied. example: the first sample that is not kept, with the strides that came of it, or what it raised.
    """

    handling: Handling
    kept: int = 0
    lost: int = 0
    viewed: int = 0
    refused: int = 0
    copied_bytes: int = 0
    contiguous_copied_bytes: int = 0
    copiers: tuple[str, ...] = ()
    example: str = ""


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times as fast channels last is as contiguous, in interleaved pairs on one input of ``shape``.

    ratio: contiguous time over channels-last time, above 1 is faster. The times are medians.
    """

    shape: tuple[int, ...]
    ratio: Ratio
    contiguous_ms: float
    channels_last_ms: float

    @property
    def verdict(self) -> Verdict:
        """Faster or slower where the whole interval lies on one side of 1."""
        if self.ratio.low > 1.0:
            return Verdict.FASTER
        return Verdict.SLOWER if self.ratio.high < 1.0 else Verdict.CANNOT_TELL


@dataclass(frozen=True, slots=True)
class Fault:
    """Values for channels-last inputs that are wrong, or that an operator refuses to compute.

    what: "output", "gradient", or "gradient of an expanded one". sample: the shapes of the inputs. edge: the name of
    the edge that they are, empty for a sample. error, contiguous_error: the largest against ``reference`` ("float64",
    or "contiguous" where the operator does not run in float64), as shares of the largest value; None where the two
    cannot be subtracted. raised: what it raised.
    """

    what: str
    sample: str
    edge: str = ""
    error: float | None = None
    contiguous_error: float | None = None
    reference: str = "float64"
    raised: str = ""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator, for pictures (dims 2) or volumes (dims 3), in one dtype, on one device, in one mode (of Mode).

    group: "operator", "torchvision", "module" or "idiom". expanded: gradients where the incoming one is expanded, as
    that of a mean or a sum is. samples: how many were run. error, contiguous_error: the largest against float64, as a
    share of the largest value. edges: shapes that were compared too ("one channel", ...); wrong_edges: those that
    differ; faults: the worst of each direction, and one for each of these edges. speed: of the forward pass;
    training_speed: of forward and backward; None where not measured.
    note: what else a reader should know. kernels: the names of the kernels of nhwc that serve it in channels last once
    they are switched on.
    """

    name: str
    group: str
    dims: int
    dtype: str
    device: str
    mode: str
    samples: int
    forward: Pass
    truth: Truth
    backward: Pass | None = None
    expanded: Pass | None = None
    error: float | None = None
    contiguous_error: float | None = None
    edges: tuple[str, ...] = ()
    wrong_edges: tuple[str, ...] = ()
    speed: Speed | None = None
    training_speed: Speed | None = None
    note: str = ""
    faults: tuple[Fault, ...] = ()
    kernels: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, int, str, str, str]:
        """What makes two rows of different surveys the same."""
        return (self.name, self.group, self.dims, self.dtype, self.device, self.mode)

    @property
    def passes(self) -> tuple[tuple[str, Pass], ...]:
        """The directions there are, with their names."""
        found = (("forward", self.forward), ("backward", self.backward), ("expanded", self.expanded))
        return tuple((name, each) for name, each in found if each is not None)

    @property
    def speeds(self) -> tuple[tuple[str, Speed], ...]:
        """The measurements there are, with their names."""
        found = (("forward", self.speed), ("forward and backward", self.training_speed))
        return tuple((name, each) for name, each in found if each is not None)

    @property
    def is_wrong(self) -> bool:
        """Whether values differ, for a sample or for an edge."""
        return self.truth == Truth.WRONG or bool(self.wrong_edges)

    @property
    def is_problem(self) -> bool:
        """Whether channels last costs something here, or is wrong."""
        slower = any(each.verdict == Verdict.SLOWER for _, each in self.speeds)
        return self.is_wrong or slower or any(each.handling.is_problem for _, each in self.passes)

    @property
    def worst(self) -> Handling:
        """The worst of its directions."""
        return max((each.handling for _, each in self.passes), key=lambda handling: handling.rank)


@dataclass(frozen=True, slots=True)
class Failure:
    """An operator that could not be surveyed, and why: it crashed, hung, or its samples could not be made."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Whole:
    """The table that a part was taken from.

    rows: how many it has. filters: the texts that names or kinds in the part had to contain. only: "problems" where
    rows without one were left out. sentences: what the whole table says, its headline first.
    """

    rows: int
    filters: tuple[str, ...]
    only: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What the operators of one torch do with channels last.

    filter: the text that names or kinds had to contain, "" for all. notes: sentences on what this table lacks.
    seconds: wall time. started: date and time with zone, ISO 8601.
    whole: where rows were left out since, what they were a part of. own_modes: the modes in which nhwc's own samples
    alone were run, torch's not.
    """

    conditions: Conditions
    rows: tuple[OperatorRow, ...]
    failures: tuple[Failure, ...]
    dtypes: tuple[str, ...]
    modes: tuple[str, ...]
    filter: str
    notes: tuple[str, ...]
    seconds: float
    started: str
    whole: Whole | None = None
    own_modes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[OperatorRow, ...]:
        """The rows in which channels last costs something, or is wrong."""
        return tuple(row for row in self.rows if row.is_problem)

    @property
    def torch(self) -> str:
        """The version of torch that was surveyed."""
        return dict(self.conditions.versions).get("torch", "")
