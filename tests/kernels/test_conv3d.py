"""3-D convolutions of one small volume, of float64 and transposed ones: in channels last, with torch's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 the usual name
from kernels import conformance
from kernels.conformance import Sample
from kernels.requirements import asked, keeps

import nhwc
from nhwc.kernels import conv3d_columns

VOLUME = (1, 4, 5, 6, 7)
CALLS = {
    "1x1x1": (lambda x, w, b: F.conv3d(x, w, b), (6, 4, 1, 1, 1)),
    "3x3x3": (lambda x, w, b: F.conv3d(x, w, b, padding=1), (6, 4, 3, 3, 3)),
    "stride 2": (lambda x, w, b: F.conv3d(x, w, b, stride=2, padding=1), (6, 4, 3, 3, 3)),
    "1x1x1, stride 2": (lambda x, w, b: F.conv3d(x, w, b, stride=2), (6, 4, 1, 1, 1)),
    "dilated": (lambda x, w, b: F.conv3d(x, w, b, dilation=2, padding=2), (6, 4, 3, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose3d(x, w, b, stride=2), (4, 6, 2, 2, 2)),
    "transposed, not side by side": (lambda x, w, b: F.conv_transpose3d(x, w, b, stride=2), (4, 6, 2, 2, 3)),
    "padded by more than it reaches": (lambda x, w, b: F.conv3d(x, w, b, padding=3), (6, 4, 3, 3, 3)),
    "transposed, overlapping": (
        lambda x, w, b: F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1, dilation=2),
        (4, 6, 3, 2, 3),
    ),
    "transposed, with gaps": (lambda x, w, b: F.conv_transpose3d(x, w, b, stride=3), (4, 6, 2, 1, 2)),
    "grouped": (lambda x, w, b: F.conv3d(x, w, b, padding=1, groups=2), (6, 2, 3, 3, 3)),
}
SAMPLES = [Sample(name, call, (VOLUME, weight, (6,))) for name, (call, weight) in CALLS.items()]
ALL_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@keeps(
    asked("conv3d", SAMPLES, "channels last", dtypes=ALL_DTYPES, hows=("channels_last", "expanded")),
    asked("conv3d", SAMPLES, "accuracy", dtypes=ALL_DTYPES),
    # a matrix product on the image itself; the others gather columns
    asked("conv3d", SAMPLES[:1], "no copies"),
    asked("conv3d", SAMPLES, "derivatives", "steps aside"),
)
def test_it_keeps_to(check: Callable[[], None]) -> None:
    check()


def test_gradients_of_weights_of_one_element_have_the_strides_of_their_weights() -> None:
    weight = conformance.canonical(torch.randn(6, 4, 1, 1, 1)).requires_grad_()
    with nhwc.kernels.use("conv3d"):
        F.conv3d(conformance.canonical(torch.randn(VOLUME)), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.stride() == weight.stride()


@pytest.mark.parametrize("name", ["3x3x3", "dilated", "transposed", "transposed, overlapping"])
def test_slabs_of_a_volume_give_the_numbers_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next(each for each in SAMPLES if each.name == name)
    slabs = []
    cut = conv3d_columns._slabs

    def counted(*operands: torch.Tensor) -> list[conv3d_columns._Slab]:
        slabs.append(list(cut(*operands)))
        return slabs[-1]

    monkeypatch.setattr(conv3d_columns, "_SLAB_BYTES", 1)
    monkeypatch.setattr(conv3d_columns, "_slabs", counted)
    conformance.check_accuracy("conv3d", sample, torch.float64)
    assert slabs
    assert all(len(each) > 1 for each in slabs)


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
