"""What can be chosen for a measurement here, checked before any time is spent on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nhwc.variants import parse, parts
from nhwc.variants.registry import Kind

_SET_AGAINST_EACH_OTHER = ("contiguous", "channels_last")


def check_variants(specs: Sequence[str], device: torch.device) -> None:
    """Raise RegistryError for a variant that does not exist, VariantError for one that ``device`` cannot run."""
    for spec in specs:
        parse(spec, device)


def every_variant(device: torch.device) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Both memory formats, alone and with each part that changes them; a sentence for each that ``device`` cannot run.

    >>> every_variant(torch.device("cpu"))[0][:2]
    ('contiguous', 'channels_last')
    """
    specs = list(_SET_AGAINST_EACH_OTHER)
    left_out = []
    for part in parts():
        if part.kind is Kind.FORMAT:
            continue
        reason = part.refusal(device)
        if reason:
            left_out.append(f"variants with {part.name} are left out: {reason}")
        else:
            formats = [each for each in _SET_AGAINST_EACH_OTHER if not part.formats or each in part.formats]
            specs += [f"{memory_format}+{part.name}" for memory_format in formats]
    return tuple(specs), tuple(left_out)
