"""Every operator that can be surveyed, by name."""

from __future__ import annotations

from nhwc.ops import opinfo
from nhwc.ops.instruments import Operator
from nhwc.ops.samples import own_operators


def operators(filter_: str = "") -> tuple[list[Operator], list[str]]:
    """Operators whose name or group contains a text, in any case, and sentences on what is left out.

    Our own samples first. Imports torch's database, which changes settings of torch: for child processes only.
    """
    wanted = filter_.lower()
    notes = [sentence] if (sentence := opinfo.missing()) else []
    found: list[Operator] = list(own_operators())
    if not notes:
        found += [opinfo.DatabaseOperator(info) for info in opinfo.database()]
    chosen = [each for each in found if wanted in each.name.lower() or wanted in each.group]
    return chosen, notes
