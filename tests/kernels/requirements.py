"""Which requirement is asked of which samples: the parameters of one test per file, each a check to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from kernels import conformance
from kernels.conformance import GRADIENTS, Sample

#: What every kernel is asked, by the words that name it in the tests.
REQUIREMENTS: dict[str, Callable[..., None]] = {
    "channels last": conformance.check_layout,
    "accuracy": conformance.check_accuracy,
    "no copies": conformance.check_no_copies,
    "steps aside": conformance.check_steps_aside,
    "derivatives": conformance.check_derivatives,
    "odd layouts": conformance.check_odd_layouts,
}
_IN_FLOAT64 = {"derivatives", "odd layouts"}


def asked(
    kernel: str,
    samples: Sequence[Sample],
    *names: str,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    hows: Sequence[str] = GRADIENTS,
) -> list[Any]:
    """A parameter per requirement, sample and dtype, for ``keeps``: which of ``REQUIREMENTS`` apply to these samples.

    dtypes: for those that do not choose float64 themselves. hows: the incoming gradients of "channels last".
    """
    found = []
    for name in names:
        check = partial(conformance.check_layout, hows=hows) if name == "channels last" else REQUIREMENTS[name]
        for sample in samples:
            if name in _IN_FLOAT64:
                found.append(pytest.param(partial(check, kernel, sample), id=f"{name}-{kernel}-{sample}"))
                continue
            for dtype in dtypes:
                label = f"{name}-{kernel}-{sample}-{str(dtype).removeprefix('torch.')}"
                found.append(pytest.param(partial(check, kernel, sample, dtype), id=label))
    return found


def keeps(*parameters: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrises a test of one argument, ``check``, by what ``asked`` made: each is called, and raises."""
    return pytest.mark.parametrize("check", [each for some in parameters for each in some])
