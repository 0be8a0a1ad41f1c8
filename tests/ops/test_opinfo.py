"""torch's database of samples is read without changing what the process may do afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("expecttest")

SCRIPT = """
import torch
from nhwc.ops import opinfo

assert len(opinfo.database()) > 100
torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
"""


def test_backend_flags_can_still_be_set_after_the_database_was_read() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
