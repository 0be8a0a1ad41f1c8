"""Engines in files: one safetensors file holds what steps read, and in its metadata the plan as JSON. No pickle."""

from nhwc.inference.saving.engines import Saved, as_loaded, read, write

__all__ = ["Saved", "as_loaded", "read", "write"]
