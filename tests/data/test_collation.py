"""Batches: the values of default_collate, with the pictures N, H, W, C in memory."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, default_collate
from torchvision import tv_tensors

import nhwc
from nhwc.data import Unreadable, collate

DTYPES = (torch.uint8, torch.float32, torch.bfloat16, torch.int64, torch.bool)


def noise(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return torch.randint(0, 256, shape).to(dtype)


def is_canonical(batch: torch.Tensor) -> bool:
    return batch.stride() == nhwc.strides_for(batch.shape, "channels_last")


@given(
    st.integers(1, 4),
    st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from(DTYPES),
    st.permutations([0, 1, 2]),
    st.lists(st.sampled_from(["plain", "gaps", "flipped", "expanded"]), min_size=4, max_size=4),
)
def test_tensors_with_any_strides_become_one_batch_in_channels_last(
    count: int, shape: tuple[int, int, int], dtype: torch.dtype, order: list[int], kinds: list[str]
) -> None:
    pictures = []
    for kind in kinds[:count]:
        made = noise(*(shape[dim] for dim in order), dtype=dtype).permute(tuple(order.index(dim) for dim in range(3)))
        if kind == "gaps":
            wide = torch.zeros(shape[0], shape[1] + 2, shape[2] * 2, dtype=dtype)
            wide[:, 1:-1, ::2] = made
            made = wide[:, 1:-1, ::2]
        elif kind == "flipped":
            made = made.flip(-1)
        elif kind == "expanded":
            made = made[:, :1].expand(shape)
        pictures.append(made)
    batch = collate(pictures)
    assert torch.equal(batch, default_collate(pictures))
    assert batch.dtype == dtype
    assert is_canonical(batch)


@pytest.mark.parametrize("contiguous", [True, False])
def test_large_pictures_too(contiguous: bool) -> None:
    pictures = [noise(3, 224, 224) if contiguous else noise(224, 224, 3).permute(2, 0, 1) for _ in range(9)]
    batch = collate(pictures)
    assert torch.equal(batch, torch.stack(pictures))
    assert is_canonical(batch)


def test_arrays_and_pictures_of_pillow_are_rows() -> None:
    pixels = noise(5, 6, 3)
    wanted = pixels.permute(2, 0, 1)
    array = pixels.numpy()
    read_only = array.copy()
    read_only.setflags(write=False)
    mirrored = np.ascontiguousarray(array[:, ::-1])[:, ::-1]
    for made in (array, np.asfortranarray(array), read_only, mirrored, Image.fromarray(array)):
        batch = collate([made, made])
        assert batch.shape == (2, 3, 5, 6)
        assert torch.equal(batch[0], wanted)
        assert is_canonical(batch)
    assert torch.equal(collate([array / 255])[0], wanted.double() / 255)
    assert torch.equal(collate([Image.fromarray(array), wanted])[1], wanted)


def test_pictures_of_pillow_keep_one_channel_and_become_rgb_otherwise() -> None:
    assert collate([Image.new("L", (4, 3), 7)]).shape == (1, 1, 3, 4)
    transparent = collate([Image.new("RGBA", (4, 3), (1, 2, 3, 0))])
    assert torch.equal(transparent, torch.full((1, 3, 3, 4), 255, dtype=torch.uint8))
    assert collate([Image.new("CMYK", (4, 3)), Image.new("P", (4, 3))]).shape == (2, 3, 3, 4)


def test_pictures_of_torchvision_become_plain_tensors() -> None:
    pictures = [tv_tensors.Image(noise(3, 4, 5)) for _ in range(2)]
    batch = collate(pictures)
    assert type(batch) is torch.Tensor
    assert torch.equal(batch, torch.stack([each.as_subclass(torch.Tensor) for each in pictures]))
    assert is_canonical(batch)


Pair = collections.namedtuple("Pair", "image label")


def test_pictures_are_found_inside_samples_and_the_rest_is_as_usual() -> None:
    pictures = [noise(3, 4, 5) for _ in range(3)]

    def samples(wrap: Any) -> list[Any]:
        return [wrap(picture, number, f"name {number}") for number, picture in enumerate(pictures)]

    images, labels, names = collate(samples(lambda *parts: parts))
    assert is_canonical(images)
    assert torch.equal(labels, torch.tensor([0, 1, 2]))
    assert labels.dtype == torch.int64
    assert list(names) == ["name 0", "name 1", "name 2"]
    nested = collate(samples(lambda image, label, name: {"image": image, "rest": [label, (name, label * 0.5)]}))
    assert is_canonical(nested["image"])
    assert torch.equal(nested["rest"][1][1], torch.tensor([0, 0.5, 1], dtype=torch.float64))
    pair = collate(samples(lambda image, label, _name: Pair(image, label)))
    assert isinstance(pair, Pair)
    assert is_canonical(pair.image)


def test_other_tensors_are_as_usual() -> None:
    boxes, masks, bag = torch.randn(4, 4), torch.randn(2, 3, 4, 5), [torch.tensor(1)]
    assert collate([boxes, boxes]).is_contiguous()
    assert collate([masks, masks]).is_contiguous()
    assert torch.equal(collate([bag, bag])[0], torch.tensor([1, 1]))
    assert torch.equal(collate([np.ones((3, 4, 7)), np.ones((3, 4, 7))]), torch.ones(2, 3, 4, 7).double())


def test_gradients_pass_through() -> None:
    pictures = [torch.randn(3, 4, 5, requires_grad=True) for _ in range(2)]
    batch = collate(pictures)
    assert is_canonical(batch)
    (batch * torch.arange(2).view(2, 1, 1, 1)).sum().backward()
    assert torch.equal(pictures[1].grad, torch.ones(3, 4, 5))


def test_the_samples_stay_as_they_are() -> None:
    picture = noise(4, 5, 3).permute(2, 0, 1)
    collate([picture]).zero_()
    assert picture.any()


def test_what_cannot_be_read_is_left_out_by_name() -> None:
    picture = noise(3, 4, 5)
    with pytest.warns(UserWarning, match=r"^left out of its batch: a\.png: it is empty$"):
        images, labels = collate([(picture, 1), Unreadable("a.png", "it is empty"), (picture, 2)])
    assert images.shape == (2, 3, 4, 5)
    assert labels.tolist() == [1, 2]
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(
            nhwc.DataError, match=r"no sample of this batch of 1 can be read; the first: a\.png: it is empty"
        ),
    ):
        collate([Unreadable("a.png", "it is empty")])
    with pytest.raises(nhwc.DataError, match="no sample of this batch of 0"):
        collate([])


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([noise(3, 4, 5), noise(3, 4, 6)], r"\(3, 4, 5\) and torch.uint8 \(3, 4, 6\); bring them to one size"),
        ([noise(3, 4, 5), noise(3, 4, 5).float()], "torch.uint8 .* and torch.float32 .*"),
        ([(noise(3, 4, 5), 1), (noise(3, 4, 5),)], r"samples of a batch have \[1, 2\] parts"),
        ([noise(3, 4, 5), 1], "a batch holds pictures and int in one place"),
    ],
)
def test_what_makes_no_batch_is_refused(samples: list[Any], said: str) -> None:
    with pytest.raises(nhwc.DataError, match=said):
        collate(samples)


class Pictures(torch.utils.data.Dataset):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((8, 9, 3), index, dtype=torch.uint8).permute(2, 0, 1), index

    def __len__(self) -> int:
        return 10


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_it_serves_any_data_loader() -> None:
    for workers in (0, 2):
        seen = []
        for images, labels in DataLoader(Pictures(), batch_size=4, num_workers=workers, collate_fn=collate):
            assert is_canonical(images)
            assert images.is_shared() == (workers > 0)
            assert torch.equal(images[:, 0, 0, 0].long(), labels)
            seen += labels.tolist()
        assert seen == list(range(10))


def test_a_worker_puts_its_batch_together_where_the_parent_can_map_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [noise(3, 4, 5, dtype=torch.float32) for _ in range(2)]
    assert not collate(pictures).is_shared()
    monkeypatch.setattr("nhwc.data.shared.get_worker_info", lambda: "a worker")
    batch = collate(pictures)
    assert batch.is_shared()
    assert torch.equal(batch, torch.stack(pictures))
    assert is_canonical(batch)
