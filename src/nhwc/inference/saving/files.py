"""One safetensors file: aligned constants, and a document in the metadata. Written whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nhwc.errors import EngineError, SchemaError
from nhwc.inference.native import ALIGNMENT_BYTES
from nhwc.inference.saving.constants import TYPES, checksum, memory_of
from nhwc.whole_files import replacing

FORMAT = "nhwc-engine"
_REMEDY = "build the engine and save it again"


def write(path: Path, document: dict[str, Any], tensors: Sequence[torch.Tensor]) -> None:
    """Replace the file at ``path``. Raises EngineError where it cannot be written; what was there stays then.

    Folders are not made, as torch.save makes none: a mistyped path is told instead of filled.
    """
    if not path.parent.exists():
        raise EngineError(
            f"there is no folder {str(path.parent)!r} to save the engine in; make it, or correct the path"
        )
    if path.is_dir():
        raise EngineError(f"{str(path)!r} is a folder; name a file in it, such as {str(path / 'model.engine')!r}")
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    metadata = {"format": FORMAT, "checksum": _checksum(text), "constants": checksum(tensors), "document": text}
    header, gaps = _header(metadata, tensors)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with replacing(path, fresh) as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for tensor, gap in zip(tensors, gaps, strict=True):
                file.write(memory_of(tensor))
                file.write(bytes(gap))
    except OSError as error:
        raise EngineError(f"the engine cannot be written to {path}: {error.strerror or error}") from error


def read(path: Path) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The document and the constants, which stay in the file: mapped, and read once here for their checksum.

    Raises SchemaError where it is no engine of ours, or the document or the constants are not what was written.
    """
    from safetensors import SafetensorError, safe_open

    where = f"the file {str(path)!r}"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise SchemaError(f"{where} is no saved engine; give a file that engine.save() wrote")
            names = [name for name in file.keys() if name.startswith("constant.")]  # noqa: SIM118 no mapping
            tensors = [file.get_tensor(name) for name in sorted(names, key=lambda each: int(each.split(".")[1]))]
    except OSError as error:
        raise SchemaError(
            f"{where} cannot be read ({error.strerror or error}); give a file that an engine saved"
        ) from error
    except (SafetensorError, ValueError) as error:
        raise SchemaError(f"{where} is damaged, or no saved engine ({error}); {_REMEDY}") from error
    text = metadata.get("document", "")
    if metadata.get("checksum") != _checksum(text):
        raise SchemaError(f"{where} is damaged (its plan is not what was written); {_REMEDY}")
    if metadata.get("constants") != checksum(tensors):
        raise SchemaError(f"{where} is damaged (its weights are not what was written); {_REMEDY}")
    document: dict[str, Any] = json.loads(text)
    return document, tensors


def _header(metadata: dict[str, str], tensors: Sequence[torch.Tensor]) -> tuple[bytes, list[int]]:
    """The header, as long as makes the data begin aligned; bytes to leave after each tensor, named as padding."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    gaps, at = [], 0
    for number, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        entries[f"constant.{number}"] = {
            "dtype": TYPES[tensor.dtype],
            "shape": [tensor.numel()],
            "data_offsets": [at, at + size],
        }
        gap = -size % ALIGNMENT_BYTES
        if gap:
            between = [at + size, at + size + gap]
            entries[f"padding.{number}"] = {"dtype": "U8", "shape": [gap], "data_offsets": between}
        gaps.append(gap)
        at += size + gap
    header = json.dumps(entries, separators=(",", ":")).encode()
    return header + b" " * (-(len(header) + 8) % ALIGNMENT_BYTES), gaps


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
