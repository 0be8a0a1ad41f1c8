"""Small tensors take the kernels too: the shapes of these tests are far below where a kernel pays."""

import pytest

from nhwc.kernels import batch_norm, joining


@pytest.fixture(autouse=True)
def every_size_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (batch_norm, joining):
        monkeypatch.setattr(module, "_WORTHWHILE", 0)
