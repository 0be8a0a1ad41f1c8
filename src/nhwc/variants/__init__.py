"""Ways to run a model that can be set against each other: a memory format, joined with what else changes the run.

A variant is written as parts joined by "+": "channels_last", "channels_last+kernels", "contiguous+compile". A new
part is one function that registers itself (its file is imported below).
"""

from nhwc.variants import compilation, engine, formats, kernels, planned, precision
from nhwc.variants.registry import parse, parts
from nhwc.variants.setup import Setup, prepare
from nhwc.variants.steps import inference_step, training_step

__all__ = [
    "Setup",
    "compilation",
    "engine",
    "formats",
    "inference_step",
    "kernels",
    "parse",
    "parts",
    "planned",
    "precision",
    "prepare",
    "training_step",
]
