"""Judges whether a model computes the same in another memory format, and finds the operator at fault where it does not.

Private interfaces of torch live in ``registration`` (how operators were registered); the rest is public, or the
recorder's.
"""

from nhwc.verification.run import Subject
from nhwc.verification.verifier import Verifier

__all__ = ["Subject", "Verifier"]
