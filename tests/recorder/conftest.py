"""What the recorder's tests share: a fingerprint of global state, and tiny models."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from nhwc.recorder import Options, record


def _bytes(tensor: torch.Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.detach().clone().numpy().tobytes()


def _descriptors() -> set[str]:
    # the one that lists the folder is closed by the time it is read
    return {f"{entry.name}:{entry.readlink()}" for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}


def global_state() -> dict[str, object]:
    """Everything outside models that a recording could change."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "anomaly mode": torch.is_anomaly_enabled(),
        "multithreading": torch._C._autograd._profiler_enabled(),
        "profiler": torch.autograd.profiler._is_profiler_enabled,
        "dispatch modes": tuple(_get_current_dispatch_mode_stack()),
        "function modes": torch._C._len_torch_function_stack(),
        "module hooks": {
            name: tuple(hooks)
            for name, hooks in vars(nn.modules.module).items()
            if name.startswith("_global_") and hasattr(hooks, "keys")
        },
        "optimizer hooks": {
            name: tuple(hooks) for name, hooks in vars(optimizers).items() if name.startswith("_global_optimizer")
        },
        "threads": torch.get_num_threads(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "torch random": _bytes(torch.get_rng_state()),
        "python random": random.getstate(),
        "numpy random": repr(np.random.get_state()),
        "file descriptors": _descriptors(),
        "temporary files": set(Path(tempfile.gettempdir()).iterdir()),
    }


def model_state(*models: nn.Module) -> list[object]:
    """Everything in models that a recording could change, identities included."""
    return [
        [
            (name, id(module), module.training, tuple(module._forward_hooks), tuple(module._backward_hooks))
            for model in models
            for name, module in model.named_modules()
        ],
        [
            (
                name,
                id(tensor),
                tensor.requires_grad,
                _bytes(tensor),
                tensor.stride(),
                tensor._version,
                id(tensor.grad),
                _bytes(tensor.grad),
            )
            for model in models
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        ],
    ]


@pytest.fixture
def leaves_no_trace(few_threads: None) -> Iterator[Callable[..., None]]:
    """Call it with models to watch (and a function giving further state): at the end all must be as it was then."""
    watched: list[tuple[object, Callable[[], object]]] = []
    before: dict[str, object] = {}

    def watch(*models: nn.Module, also: Callable[[], object] = lambda: None) -> None:
        def state() -> object:
            return model_state(*models), also()

        watched.append((state(), state))
        before.update(before or global_state())

    record(nn.Conv2d(1, 1, 1), torch.randn(1, 1, 1, 1))  # what torch imports and opens once for all
    yield watch
    after = global_state()
    assert watched, "the test watched nothing"
    assert {key: after[key] for key in before if after[key] != before[key]} == {}
    for then, state in watched:
        assert state() == then


@pytest.fixture
def without_gc() -> Iterator[None]:
    """Garbage in cycles stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Small(nn.Module):
    """Convolution, batch norm, dropout and a nested Sequential: everything that a step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()), nn.Dropout(0.5))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


@pytest.fixture
def small() -> Small:
    return Small()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


TRAIN = Options(train=True)
