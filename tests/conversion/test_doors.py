"""The doors: arguments and results take the format on their way in and out."""

import copy
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from nhwc.conversion import convert, restore

Pair = namedtuple("Pair", "image label")


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    note: str = ""


class Catch(nn.Module):
    """Keeps what it was called with, and gives its first argument back."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, *args, **kwargs):
        self.seen = args, kwargs
        return args[0] if args else kwargs


IMAGE, CLIP = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 2, 4, 5)
LAST, LAST_3D = (60, 1, 15, 3), (120, 1, 60, 15, 3)


def called(*args, memory_format="auto", **kwargs):
    model = convert(Catch(), memory_format, inputs=True)
    model(*args, **kwargs)
    return model.seen


def test_images_and_clips_in_every_container():
    args, kwargs = called(
        IMAGE,
        [IMAGE, {"clip": CLIP}],
        Pair(IMAGE, 3),
        Sample(IMAGE, "cat"),
        OrderedDict(a=CLIP),
        image=IMAGE,
    )
    assert args[0].stride() == LAST
    assert type(args[1]) is list
    assert args[1][0].stride() == LAST
    assert args[1][1]["clip"].stride() == LAST_3D
    assert type(args[2]) is Pair
    assert (args[2].image.stride(), args[2].label) == (LAST, 3)
    assert (args[3].image.stride(), args[3].note) == (LAST, "cat")
    assert type(args[4]) is OrderedDict
    assert args[4]["a"].stride() == LAST_3D
    assert kwargs["image"].stride() == LAST
    assert torch.equal(args[0], IMAGE)


@pytest.mark.parametrize(
    "value",
    [
        [torch.randn(3, 4, 4), torch.randn(3, 5, 5)],
        torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        torch.zeros(2, 3, 4, 4).to_sparse(),
        {"boxes": torch.randn(5, 4), "name": "x"},
        IMAGE.to(memory_format=torch.channels_last),
        Sample,
        None,
    ],
    ids=["images", "bytes", "sparse", "boxes", "right", "class", "none"],
)
def test_what_needs_nothing_passes_as_the_object_it_is(value):
    args, kwargs = called(value, again=value)
    assert args[0] is value
    assert kwargs["again"] is value


def test_the_callers_containers_stay_as_they_are():
    batch = {"image": IMAGE}
    called(batch)
    assert batch["image"] is IMAGE
    assert IMAGE.stride() == (60, 20, 5, 1)


def test_an_explicit_format_reaches_its_rank_only():
    args, _ = called(IMAGE, CLIP, memory_format="channels_last")
    assert args[0].stride() == LAST
    assert args[1] is CLIP


def test_gradients_reach_the_callers_tensor():
    image = IMAGE.clone().requires_grad_()
    convert(nn.Conv2d(3, 2, 1), inputs=True)(image).sum().backward()
    assert image.grad is not None
    assert image.grad.shape == image.shape


def test_results_leave_contiguous():
    model = convert(nn.Conv2d(3, 4, 1), inputs=True)
    assert model(IMAGE).stride() == (80, 1, 20, 4)
    convert(model, outputs="contiguous")
    assert model(IMAGE).stride() == (80, 20, 5, 1)
    convert(model, outputs="channels_last")
    assert model(IMAGE).stride() == (80, 1, 20, 4)


class ReadsAddresses(nn.Module):
    """Stands for a runtime that takes an address and a shape, and assumes N, C, H, W."""

    def forward(self, x):
        flat = torch.empty(0).set_(x.untyped_storage(), x.storage_offset(), (x.numel(),), (1,))
        return flat.view(x.shape).sum(dim=(2, 3))


def test_a_part_that_reads_addresses_gets_a_border():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), ReadsAddresses())
    expected = model(IMAGE)
    convert(model, inputs=True)
    assert not torch.allclose(model(IMAGE), expected, atol=1e-5)
    convert(model[1], "contiguous", inputs=True)
    torch.testing.assert_close(model(IMAGE), expected)
    assert model[0].weight.stride() == (3, 1, 3, 3)
    restore(model[1])
    assert not model[1]._forward_pre_hooks
    restore(model)


def test_one_door_however_often_and_none_after_restore():
    model = Catch()
    convert(model, inputs=True, outputs="contiguous")
    convert(model, inputs=True, outputs="contiguous")
    convert(model)
    assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (1, 1)
    model(IMAGE)
    assert model.seen[0][0].stride() == LAST
    restore(model)
    model(IMAGE)
    assert model.seen[0][0] is IMAGE
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    assert not model._forward_pre_hooks_with_kwargs


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_doors_travel_with_a_copy_and_come_off_it(copied):
    original = convert(nn.Conv2d(3, 4, 1), inputs=True, outputs="contiguous")
    model = copied(original)
    inputs = []
    handle = model.register_forward_hook(lambda module, args, output: inputs.append(args[0].stride()))
    assert model(IMAGE).stride() == (80, 20, 5, 1)
    assert inputs == [LAST]
    handle.remove()
    restore(model)
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    assert original(IMAGE).stride() == (80, 20, 5, 1)


def test_torch_compile_before_or_after():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.conv(x), x * 1

    inside = Two()
    model = torch.compile(inside, backend="eager")
    model(IMAGE)
    assert convert(model, inputs=True) is model
    convolved, image = model(IMAGE)
    assert convolved.is_contiguous(memory_format=torch.channels_last)
    assert image.stride() == LAST
    restore(inside)
    assert model(IMAGE)[1].stride() == (60, 20, 5, 1)
    torch._dynamo.reset()


def test_the_border_inside_data_parallel():
    model = nn.DataParallel(Catch())
    convert(model, inputs=True)
    assert model.module.conv.weight.stride() == (3, 1, 3, 3)
    model(IMAGE)
    assert model.module.seen[0][0].stride() == LAST
    restore(model)
