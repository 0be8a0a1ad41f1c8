"""Change a model's memory format in place, and change it back."""

from __future__ import annotations

from nhwc.conversion.broadcast import broadcast_alone
from nhwc.conversion.doors import bring
from nhwc.conversion.optimizers import follow_parameters, holders_of
from nhwc.conversion.record import follow_gradients, forget, is_converted
from nhwc.conversion.state_dict import contiguous_state_dict
from nhwc.conversion.temporary import converted
from nhwc.conversion.verbs import convert, convert_each, restore

__all__ = [
    "bring",
    "broadcast_alone",
    "contiguous_state_dict",
    "convert",
    "convert_each",
    "converted",
    "follow_gradients",
    "follow_parameters",
    "forget",
    "holders_of",
    "is_converted",
    "restore",
]
