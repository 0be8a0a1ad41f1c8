"""3-D convolutions of one small volume, of float64 and transposed ones: in channels last, with torch's numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample

VOLUME = (1, 4, 5, 6, 7)
CALLS = {
    "1x1x1": (lambda x, w, b: F.conv3d(x, w, b), (6, 4, 1, 1, 1)),
    "3x3x3": (lambda x, w, b: F.conv3d(x, w, b, padding=1), (6, 4, 3, 3, 3)),
    "stride 2": (lambda x, w, b: F.conv3d(x, w, b, stride=2, padding=1), (6, 4, 3, 3, 3)),
    "1x1x1, stride 2": (lambda x, w, b: F.conv3d(x, w, b, stride=2), (6, 4, 1, 1, 1)),
    "dilated": (lambda x, w, b: F.conv3d(x, w, b, dilation=2, padding=2), (6, 4, 3, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose3d(x, w, b, stride=2), (4, 6, 2, 2, 2)),
    "grouped": (lambda x, w, b: F.conv3d(x, w, b, padding=1, groups=2), (6, 2, 3, 3, 3)),
}
SAMPLES = [Sample(name, call, (VOLUME, weight, (6,))) for name, (call, weight) in CALLS.items()]
every = pytest.mark.parametrize("sample", SAMPLES, ids=str)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)


@every
@dtypes
def test_everything_is_channels_last(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_layout("conv3d", sample, dtype, ("channels_last", "expanded"))


@every
@dtypes
def test_errors_are_no_larger(sample: Sample, dtype: torch.dtype) -> None:
    conformance.check_accuracy("conv3d", sample, dtype)


@pytest.mark.parametrize("sample", SAMPLES[:1], ids=str)
def test_a_matrix_product_copies_nothing(sample: Sample) -> None:
    conformance.check_no_copies("conv3d", sample, torch.float32)


@every
def test_derivatives(sample: Sample) -> None:
    conformance.check_derivatives("conv3d", sample)


@every
def test_contiguous_input_takes_the_original(sample: Sample) -> None:
    conformance.check_steps_aside("conv3d", sample, torch.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.conv3d(x, torch.randn(6, 5, 1, 1, 1)),
        lambda x: F.conv3d(x, torch.randn(6, 4, 1, 1, 1), dilation=0),
        lambda x: F.conv3d(x, torch.randn(6, 4, 9, 9, 9)),
        lambda x: F.conv3d(x, torch.randn(6, 4, 1, 1, 1), torch.randn(5)),
        lambda x: F.conv3d(x, torch.randn(6, 4, 1, 1, 1).double()),
    ],
)
def test_bad_input_is_refused_in_torchs_words(call: object) -> None:
    conformance.check_error("conv3d", lambda: call(conformance.canonical(torch.randn(VOLUME))))  # type: ignore[operator]
