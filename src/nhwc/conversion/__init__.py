"""Change a model's memory format in place, and change it back."""

from __future__ import annotations

from nhwc.conversion.doors import bring
from nhwc.conversion.state_dict import contiguous_state_dict
from nhwc.conversion.temporary import converted
from nhwc.conversion.verbs import convert, restore

__all__ = ["bring", "contiguous_state_dict", "convert", "converted", "restore"]
