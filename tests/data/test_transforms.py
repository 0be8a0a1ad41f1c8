"""The transforms give torchvision's pixels, with H, W, C in memory before and after."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

import nhwc
from nhwc.data import eval_transform, train_transform


def picture(height: int, width: int, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (height, width, channels), dtype=torch.uint8).permute(2, 0, 1)


def lies_in_rows(image: torch.Tensor) -> bool:
    """Whether the channels of a pixel, and the pixels of a row, lie side by side."""
    channels = image.shape[0]
    return (channels == 1 or image.stride()[0] == 1) and image.stride()[2] == channels


@pytest.mark.parametrize("size", [(40, 60), (60, 40), (33, 33), (32, 400), (300, 31), (20, 24)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_eval_is_resize_and_center_crop(size: tuple[int, int], channels: int) -> None:
    image = picture(*size, channels)
    usual = v2.Compose([v2.Resize(32, antialias=True), v2.CenterCrop(28)])
    found = eval_transform(28)(image)
    assert torch.equal(found, usual(image))
    assert lies_in_rows(found)


def test_eval_cuts_other_shapes_too() -> None:
    image = picture(50, 70)
    usual = v2.Compose([v2.Resize(40, antialias=True), v2.CenterCrop((30, 36))])
    assert torch.equal(eval_transform((30, 36), resize=40)(image), usual(image))


@pytest.mark.parametrize("channels", [1, 3])
def test_train_is_a_resized_crop_and_a_flip(channels: int) -> None:
    image = picture(50, 70, channels)
    transform = train_transform(32)
    flipped = 0
    for seed in range(12):
        torch.manual_seed(seed)
        window = transform.window(50, 70)
        usual = functional.resized_crop(image, *window, [32, 32], antialias=True)
        torch.manual_seed(seed)
        found = transform(image)
        assert lies_in_rows(found)
        if not torch.equal(found, usual):
            flipped += 1
            assert torch.equal(found, functional.horizontal_flip(usual))
    assert 0 < flipped < 12


@pytest.mark.parametrize(("flip", "mirrored"), [(0.0, False), (1.0, True)])
def test_flips_as_often_as_it_is_told(flip: float, mirrored: bool) -> None:
    image = picture(8, 8)
    transform = train_transform(8, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=flip)
    for _ in range(5):
        assert torch.equal(transform(image), image.flip(-1) if mirrored else image)


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.floats(0.2, 5),
    st.floats(1, 4),
    st.integers(0, 1 << 30),
)
def test_a_window_lies_inside_the_picture(
    height: int, width: int, low: float, high: float, ratio: float, wider: float, seed: int
) -> None:
    torch.manual_seed(seed)
    transform = train_transform(8, scale=(min(low, high), max(low, high)), ratio=(ratio, ratio * wider))
    top, left, tall, wide = transform.window(height, width)
    assert 0 <= top <= top + tall <= height
    assert 0 <= left <= left + wide <= width
    assert min(tall, wide) >= 1


def test_windows_are_drawn_as_torchvision_draws_them() -> None:
    transform = train_transform(8)
    ours = torch.tensor([transform.window(100, 140) for _ in range(3000)], dtype=torch.float64)
    usual = v2.RandomResizedCrop(8)
    drawn = [usual.make_params([torch.empty(3, 100, 140)]) for _ in range(3000)]
    theirs = torch.tensor([[each[key] for key in ("top", "left", "height", "width")] for each in drawn]).double()
    for each in range(4):  # the means of two samples of one distribution lie within a few standard errors
        error = (ours[:, each].var() / 3000 + theirs[:, each].var() / 3000).sqrt()
        assert abs(ours[:, each].mean() - theirs[:, each].mean()) < 5 * error


def test_they_travel_to_workers() -> None:
    for transform in (train_transform(8), eval_transform(8)):
        assert pickle.loads(pickle.dumps(transform)) == transform


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: train_transform(0), "expected a height and a width of at least 1"),
        (lambda: train_transform(8, scale=(0.5, 0.2)), "expected shares of the area"),
        (lambda: train_transform(8, scale=(0.5, 2)), "expected shares of the area"),
        (lambda: train_transform(8, ratio=(2, 1)), "expected widths over heights"),
        (lambda: train_transform(8, flip=1.5), "expected a probability"),
        (lambda: eval_transform(8, resize=4), "resize=4 is smaller than the cut of 8 x 8"),
        (lambda: eval_transform(8)(torch.zeros(3, 8, 8)), r"got torch.float32 of shape \(3, 8, 8\)"),
        (lambda: train_transform(8)(torch.zeros(8, 8, dtype=torch.uint8)), r"got torch.uint8 of shape \(8, 8\)"),
        (lambda: train_transform(8)("a.png"), "expected a picture, uint8 of shape .C, H, W. .*, got str"),
    ],
)
def test_what_does_not_fit_is_refused(made: object, said: str) -> None:
    with pytest.raises(nhwc.DataError, match=said):
        made()


@pytest.mark.parametrize("transform", [train_transform(8), eval_transform(8)])
def test_the_resize_itself_answers_in_rows(transform: object, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    plain = torch.nn.functional.interpolate

    def watched(*arguments: object, **options: object) -> torch.Tensor:
        answers.append(plain(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(torch.nn.functional, "interpolate", watched)
    transform(picture(40, 50))
    assert [each.is_contiguous(memory_format=torch.channels_last) for each in answers] == [True]
