"""Recorded steps, kept on disk, so that a model that is planned again runs no step.

They stand under a hash of the model's code, settings and shapes and of all else that tells which operators run. Code
that the hash does not see (``nhwc.inference.remembering.fingerprint``) can change under it: ``optimize`` measures a
plan before it goes by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from nhwc.errors import SchemaError
from nhwc.inference.remembering.documents import Documents
from nhwc.inference.remembering.fingerprint import fingerprint
from nhwc.model import Trace
from nhwc.recorder import Options
from nhwc.schema import dump_trace, load_trace

#: The step in contiguous, and in channels last: None where the model does not run so.
Recorded = tuple[Trace, Trace | None]


class KeptSteps:
    """Recorded steps under a folder, None for nowhere. A file takes some hundred KB."""

    def __init__(self, where: Path | None) -> None:
        self._documents = Documents(None if where is None else where / "steps", "nhwc recorded steps", 1, 64)

    def find(self, key: str | None, record: Callable[[], Recorded]) -> Recorded:
        """The steps of ``key``, recorded where they are not kept. None is the key of what is never kept."""
        document = None if key is None else self._documents.read(key)
        if document is not None:
            with contextlib.suppress(SchemaError, KeyError, TypeError):
                return load_trace(document["contiguous"]), load_trace(document["channels_last"])
        contiguous, channels_last = record()
        if key is not None and channels_last is not None:  # what did not run may do so next time
            traces = {"contiguous": dump_trace(contiguous), "channels_last": dump_trace(channels_last)}
            with contextlib.suppress(TypeError, ValueError):  # else it is recorded again next time
                self._documents.write(key, traces)
        return contiguous, channels_last


def step_key(
    model: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], options: Options, subject: Mapping[str, Any]
) -> str | None:
    """What stands for all that tells which operators a step runs; None where something of it cannot be told.

    subject: what a plan for the step holds for.
    """
    told = fingerprint(model, [inputs, options.loss], kwargs)
    if told is None:
        return None
    tensors = [*model.parameters(), *(each for each in tree_leaves([inputs, kwargs]) if isinstance(each, torch.Tensor))]
    settings = (
        options.target,
        options.kernels_on(),
        [each.requires_grad for each in tensors],
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.version.git_version,
        sorted(subject.items()),
    )
    return f"{told} {settings!r}"
