"""Small tensors take the kernels too: the shapes of these tests are far below where a kernel pays."""

import re

import pytest

from nhwc.kernels import batch_norm, joining

_RARER_TYPES = re.compile(r"(?<!b)float16|float64")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The default run asks every requirement in float32 and bfloat16; float64 and float16 are the slow run's."""
    for item in items:
        if "kernels" in item.path.parts and _RARER_TYPES.search(item.name):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def every_size_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (batch_norm, joining):
        monkeypatch.setattr(module, "_WORTHWHILE", 0)
