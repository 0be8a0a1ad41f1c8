"""The frozen data that every part speaks: a Trace of one step, and the Findings and Report made of it.

Units are in the names: ``_ms`` milliseconds, ``_bytes`` bytes; shapes are in elements, strides too.
Nothing here needs torch: a saved trace can be audited anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """error: numbers can be wrong; warning: it costs time; note: a risk."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Phase(StrEnum):
    """The part of a step in which an operator ran."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """One tensor as an operator saw it. ``storage`` identifies the memory within one trace (views share it).

    name: the parameter, buffer or input that this memory belongs to, else None.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    storage: int
    offset: int
    itemsize: int
    name: str | None = None

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (not of the storage)."""
        return self.numel * self.itemsize


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's code: the innermost one that is neither torch's nor ours."""

    file: str
    line: int
    text: str = ""
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class InnerCopy:
    """A copy made inside a kernel: ``source`` was read with its strides, ``target`` written with its own.

    operator: the ATen operator that the kernel called (aten::clone, aten::copy_, ...).
    """

    operator: str
    source: TensorMeta
    target: TensorMeta
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class Reorder:
    """A copy made inside a library (oneDNN reorder, cuDNN layout kernel).

    operand: "src", "weights", "dst" or "" where the library does not say; formats are the library's own words.
    """

    library: str
    operand: str
    source_format: str
    target_format: str
    shape: tuple[int, ...]
    nbytes: int
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call.

    operator: the overload, "aten.convolution.default".
    caller: the outermost operator the user's code called, "aten::instance_norm"; equals the operator's own name
        where nothing composite stands between.
    arguments: the call's arguments as JSON-able data, in which {"tensor": i} stands for ``inputs[i]``.
    forward: for a backward call, the index of the forward call it comes from.
    view: every output shares its memory with an input, nothing was written.
    mutates: indices into ``inputs`` of the tensors that the call wrote.
    """

    index: int
    operator: str
    caller: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    phase: Phase
    module: str
    module_type: str
    source: Source | None
    forward: int | None = None
    view: bool = False
    mutates: tuple[int, ...] = ()
    arguments: tuple[object, ...] = ()
    keywords: tuple[tuple[str, object], ...] = ()
    copies: tuple[InnerCopy, ...] = ()
    reorders: tuple[Reorder, ...] = ()
    ms: float | None = None

    @property
    def name(self) -> str:
        """The short operator name: "convolution" for "aten.convolution.default"."""
        parts = self.operator.split(".")
        return parts[1] if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class ParameterMeta:
    """A parameter or buffer of the traced model, and its gradient's strides where it has one after the step."""

    name: str
    tensor: TensorMeta
    gradient: TensorMeta | None = None
    module_type: str = ""
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class OptimizerStateMeta:
    """One state tensor (exp_avg, momentum_buffer, ...) of one parameter of an optimizer."""

    optimizer: str
    fused: bool
    parameter: str
    key: str
    parameter_strides: tuple[int, ...]
    state_strides: tuple[int, ...]
    shape: tuple[int, ...]
    gradient_strides: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RankLayout:
    """What one rank of a process group holds: (name, shape, strides) for every parameter and buffer."""

    rank: int
    tensors: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class StepError:
    """The exception that ended the recorded step, and the operator call that raised it where one did."""

    type: str
    message: str
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """Median and spread (interquartile range) of ``repeats`` timings."""

    median_ms: float
    spread_ms: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the trace was taken."""

    torch: str
    python: str
    device: str
    processor: str
    threads: int
    nhwc: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Every operator call of one step, in order.

    mode: "eager", "static" (fake tensors) or "compiled".
    layers: (module path, module type) in the order of first use, leaves only.
    limits: sentences that say what this trace cannot see.
    confusions: sentences about places where the recorder was unsure (shared modules, lost module stack).
    kernels: those of nhwc.kernels that were on in the forward pass, and in the backward pass where there was one.
    """

    target: str
    mode: str
    training: bool
    environment: Environment
    calls: tuple[Call, ...]
    inputs: tuple[TensorMeta, ...] = ()
    parameters: tuple[ParameterMeta, ...] = ()
    optimizer_states: tuple[OptimizerStateMeta, ...] = ()
    ranks: tuple[RankLayout, ...] = ()
    layers: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = ()
    confusions: tuple[str, ...] = ()
    conversion: str = ""
    error: StepError | None = None
    step: Measurement | None = None
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a step does with its memory formats, told to a user.

    id: unique in its report ("F1"). cause: the id of the finding it follows from, else None.
    kind: "copy", "loss", "slow", "risk" or "numerics".
    calls: how many operator calls it stands for; call_indices: which.
    bytes: bytes moved, or the bytes of the tensor written in the other format, summed over the calls.
    ms, ms_spread: time lost, summed over the calls: median of repeats and interquartile range; None if not measured.
    share: ms over the step's ms, 0 to 1; None where either is missing.
    kernel: the kernel of nhwc.kernels that would avoid or shorten it, by name; None where there is none, or it ran.
    kernel_ms: milliseconds that the kernel would save over the calls, below 0 where it costs; None if not measured.
    """

    id: str
    code: str
    kind: str
    severity: Severity
    operator: str
    module: str
    source: Source | None
    phase: Phase
    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    bytes: int
    message: str
    advice: str
    calls: int = 1
    ms: float | None = None
    ms_spread: float | None = None
    share: float | None = None
    cause: str | None = None
    call_indices: tuple[int, ...] = ()
    kernel: str | None = None
    kernel_ms: float | None = None


@dataclass(frozen=True)
class Report:
    """A trace and what was found in it. Culprits come first, ranked by cost; consequences follow their cause."""

    trace: Trace
    findings: list[Finding] = field(default_factory=list)

    @property
    def culprits(self) -> list[Finding]:
        """Findings that cost or can be wrong and that follow from no other."""
        return [f for f in self.findings if f.cause is None and f.severity is not Severity.NOTE]

    def consequences(self, finding: Finding) -> list[Finding]:
        """The findings folded under ``finding``."""
        return [f for f in self.findings if f.cause == finding.id]

    @property
    def lost_ms(self) -> float | None:
        """Milliseconds lost by all findings (notes aside), None where nothing was measured."""
        times = [f.ms for f in self.findings if f.ms is not None and f.severity is not Severity.NOTE]
        return sum(times) if times or not self._costing else None

    @property
    def lost_bytes(self) -> int:
        return sum(f.bytes for f in self._costing)

    @property
    def lost_share(self) -> float | None:
        """lost_ms over the step's ms, 0 to 1."""
        step = self.trace.step
        return None if step is None or self.lost_ms is None or not step.median_ms else self.lost_ms / step.median_ms

    @property
    def kernel_ms(self) -> float | None:
        """Milliseconds that all kernels named by findings would save together, None where none was measured."""
        times = [f.kernel_ms for f in self._costing if f.kernel_ms is not None]
        return sum(times) if times else None

    @property
    def _costing(self) -> list[Finding]:
        return [f for f in self.findings if f.severity is not Severity.NOTE]
