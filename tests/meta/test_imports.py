"""What importing loads, and what it leaves alone."""

import subprocess
import sys

import pytest

HEAVY = ["torch", "torchvision", "timm", "numpy", "rich", "jinja2", "typer", "PIL", "skimage", "safetensors"]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_nhwc_loads_no_torch_and_no_optional_package() -> None:
    assert python(f"import sys, nhwc; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_importing_nhwc_alters_no_global_state() -> None:
    code = """
import copy, locale, logging, os, signal, sys, threading, warnings
def state():
    return (list(warnings.filters), list(sys.path), dict(os.environ), list(logging.root.handlers), logging.root.level,
            list(sys.meta_path), sys.excepthook, sys.displayhook, signal.getsignal(signal.SIGINT),
            threading.active_count(), locale.setlocale(locale.LC_ALL), sys.getrecursionlimit())
before = state()
import nhwc
print(state() == before)
"""
    assert python(code) == "True"


def test_importing_everything_leaves_torch_as_it_was() -> None:
    code = """
import torch, warnings
def state():
    return (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.backends.mkldnn.enabled,
            torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), torch.initial_seed(),
            torch.random.get_rng_state().tolist(), list(warnings.filters))
before = state()
import nhwc
for name in nhwc.__all__:
    getattr(nhwc, name)
print(state() == before)
"""
    assert python(code) == "True"


@pytest.mark.parametrize(
    "module",
    ["nhwc", "nhwc.errors", "nhwc.strides", "nhwc.model", "nhwc.schema", "nhwc.rules", "nhwc.report", "nhwc.suites"],
)
def test_the_pure_parts_import_where_torch_is_missing(module: str) -> None:
    assert python(f"import sys; sys.modules['torch'] = None; import {module}; print('fine')") == "fine"


def test_the_pure_names_work_where_torch_is_missing() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import nhwc; print(nhwc.strides_for((2, 3, 4, 5), 'channels_last'))"
    )
    assert python(code) == "(60, 1, 15, 3)"
