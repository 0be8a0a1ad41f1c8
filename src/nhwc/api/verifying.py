"""The verb verify: whether a model computes the same in channels last, and the report of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from nhwc.api.showing import Showing
from nhwc.errors import ModelError, RegistryError
from nhwc.progress import Progress, quiet
from nhwc.proof import Verification
from nhwc.recorder import device_of
from nhwc.report.verification.summary import headline
from nhwc.schema import load_verification as read_verification
from nhwc.verification import Subject, Verifier

#: How many times the contiguous error a variant's may be; docs/verify.md tells how it was chosen.
FACTOR = 8.0


@dataclass(frozen=True, repr=False)
class VerifyReport(Showing, Verification):
    """A verification that shows itself: in a terminal, and in a file."""

    _kind = "verification"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.target}: {headline(self)}>"


def verify(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
    variants: Sequence[str] | None = None,
    factor: float = FACTOR,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Optimizer | None = None,
    seed: int = 0,
    reproducer: str | Path | None = None,
    target: str = "",
    progress: Progress | None = None,
) -> VerifyReport:
    """Judge whether ``model`` computes the same in other memory formats, each result against float64.

    A variant passes where the error of every output (and with ``train`` of every gradient and buffer, with
    ``optimizer`` of every updated parameter) is at most ``factor`` times that of contiguous format. Where one does not,
    the first operator at fault is named. Every run is on a copy: model, inputs, optimizer and random state stay as
    they are.

    variants: specs of parts joined by "+" ("channels_last", "channels_last+bf16"); by default channels last, with an
        optimizer also "as_is", model and optimizer exactly as they were given.
    loss: output → scalar; without one a training step starts from a fixed random gradient.
    optimizer: one that holds parameters of ``model``; one step of it is verified too (needs ``train``).
    seed: of every random generator at the start of each run.
    reproducer: folder for a Python file that shows the operator at fault alone; None writes none.
    progress: called with (stage, done, total).

    Raises ModelError where the model raises in contiguous format, RegistryError and VariantError for a variant that
    cannot be had.

    >>> report = verify(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.randn(2, 3, 8, 8))
    >>> report.passed
    True
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"verify takes an nn.Module, got {type(model).__name__}; wrap what is to be called in a module"
        )
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ModelError(f"optimizer takes one that holds parameters of the model, got {type(optimizer).__name__}")
    if loss is not None and not train:
        raise ModelError("a loss is for training: pass train=True too, or leave the loss out")
    if optimizer is not None and not train:
        raise ModelError("an optimizer steps in training only: pass train=True too, or leave the optimizer out")
    if not factor > 0:
        raise RegistryError(f"factor={factor} is not above 0; it says how many times the contiguous error is allowed")
    if isinstance(variants, str):
        variants = (variants,)
    if variants is None:
        variants = ("channels_last",) if optimizer is None else ("as_is", "channels_last")
    if not variants:
        raise RegistryError("no variant to verify; name at least one, such as 'channels_last'")
    subject = Subject(model, inputs, dict(kwargs or {}), device_of(model, inputs), train, loss, optimizer, seed)
    folder = None if reproducer is None else Path(reproducer)
    verifier = Verifier(subject, factor, folder, progress or quiet)
    found = verifier.verify(tuple(variants), target or type(model).__name__)
    return _report(found)


def load_verification(source: Mapping[str, Any] | str | Path) -> VerifyReport:
    """The verification saved as JSON in a file (a path), a text or a dictionary; equal to the one that was saved.

    Raises SchemaError where it is not ours, is damaged, or comes from a newer nhwc.
    """
    return _report(read_verification(source))


def _report(found: Verification) -> VerifyReport:
    return VerifyReport(**{field.name: getattr(found, field.name) for field in fields(Verification)})
