"""Captured models by their code, settings and shapes; those of an earlier process have to be compared with eager."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nhwc.errors import EngineError
from nhwc.inference.capture import Captured
from nhwc.inference.graph import Graph
from nhwc.inference.importing import imported
from nhwc.inference.passes import simplify
from nhwc.inference.remembering.captures import read, written
from nhwc.inference.remembering.documents import Documents
from nhwc.inference.remembering.fingerprint import fingerprint
from nhwc.inference.requirements import require_evaluation
from nhwc.inference.specialization import graph_of


class Captures:
    """Captured models under a folder, None for nowhere. A file takes 100 to 500 KB."""

    def __init__(self, where: Path | None) -> None:
        self._documents = Documents(None if where is None else where / "captures", "nhwc engine capture", 1, 256)
        self._keys: dict[Captured, str] = {}
        self._from_file: set[Captured] = set()

    def graph_of(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Captured, Graph]:
        """The model's graph for these arguments, as ``specialization.graph_of`` gives it.

        From a file, where a model of the same code, settings and shapes was captured before. Raises EngineError.
        """
        require_evaluation(model)
        told = None if self._documents.folder is None else fingerprint(model, args, kwargs)
        if told is None:
            return graph_of(model, args, kwargs)
        key = f"{torch.__version__} {sys.version} {told}"
        found = self._found(key, model)
        if found is None:
            found = graph_of(model, args, kwargs)
            with contextlib.suppress(EngineError, NotImplementedError, TypeError, ValueError):
                self._documents.write(key, written(found[0]))  # else it is captured again next time
        else:
            self._from_file.add(found[0])
        self._keys[found[0]] = key
        return found

    def key_of(self, captured: Captured) -> str | None:
        """What stands for the model's code, settings and shapes; None where they could not be told."""
        return self._keys.get(captured)

    def is_from_file(self, captured: Captured) -> bool:
        """Whether a capture was made earlier, so that results have to show that it still holds."""
        return captured in self._from_file

    def forget(self, captured: Captured) -> None:
        """Drop what turned out to compute something else."""
        self._documents.drop(self._keys[captured])

    def _found(self, key: str, model: torch.nn.Module) -> tuple[Captured, Graph] | None:
        document = self._documents.read(key)
        if document is None:
            return None
        try:
            captured = read(document, model)
            graph = imported(captured, captured.root)
            if graph is None:
                return None
            simplify(graph)
        except Exception:  # noqa: BLE001 a damaged document may fail anywhere; the model is captured anew
            return None
        return captured, graph
