"""What every test relies on: global torch state is as it was found, and random numbers repeat."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers are as many as the cores; what needs two threads asks for them

settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")


def pytest_collection_finish() -> None:
    """Take what imports and collection made out of the collector's sight, which conversion searches for optimizers."""
    gc.collect()
    gc.freeze()


def _global_state() -> dict[str, object]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "threads": torch.get_num_threads(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "module hooks": tuple(
            len(hooks)
            for name, hooks in sorted(vars(torch.nn.modules.module).items())
            if name.startswith("_global_") and name.endswith("_hooks")
        ),
    }


@pytest.fixture(autouse=True)
def unchanged_torch() -> Iterator[None]:
    """Seed every test, and fail the one that leaves torch's global state other than it found it."""
    before = _global_state()
    torch.manual_seed(0)
    yield
    after = _global_state()
    torch.set_num_threads(before["threads"])
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    assert not changed, f"the test changed torch's global state (before, after): {changed}"


@pytest.fixture
def few_threads() -> Iterator[None]:
    """One thread, which is faster for tiny tensors, and the number of before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
