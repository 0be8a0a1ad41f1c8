"""What an engine runs, and where it was made: what a file of it holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nhwc.engine_report import Accuracy
from nhwc.inference.loaded import Loaded
from nhwc.inference.specialization import Specialization
from nhwc.kernels.native.library import INTERFACE, status

#: The engine for one set of shapes, with its model behind it or without.
Ready = Specialization | Loaded


@dataclass(frozen=True)
class Origin:
    """What steps were made for. nhwc, interface, instruction_set: must be the same for them to run."""

    nhwc: str
    interface: int
    instruction_set: str
    processor: str
    torch: str

    @classmethod
    def here(cls, processor: str, nhwc: str) -> Origin:
        """This process; its processor and its version of nhwc as they are told."""
        return cls(nhwc, INTERFACE, status().instruction_set, processor, torch.__version__)

    def obstacle(self, here: Origin) -> str:
        """Why steps that were made there cannot run here; empty where they can."""
        if self.instruction_set != here.instruction_set:
            found = here.instruction_set or "no compiled library"
            return f"its steps are compiled for {self.instruction_set or 'torch alone'}, and here is {found}"
        if self.interface != here.interface or self.nhwc != here.nhwc:
            return f"its steps were made by nhwc {self.nhwc} (library {self.interface}), and here is {here.nhwc}"
        return ""


@dataclass(frozen=True)
class Contents:
    """specializations: in the order in which they were asked for. buckets: for further batch sizes, which smaller
    batches are filled up to. accuracy: the worst of them all, where it was measured. target: a name for reports.
    """

    specializations: tuple[Ready, ...]
    buckets: tuple[Ready, ...]
    accuracy: Accuracy | None
    target: str
    origin: Origin
