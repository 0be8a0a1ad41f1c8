"""Engines in files: one safetensors file holds what steps read, and in its metadata the plan as JSON. No pickle."""

from nhwc.inference.saving.engines import read, released, write

__all__ = ["read", "released", "write"]
