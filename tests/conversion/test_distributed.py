"""DistributedDataParallel neither raises, warns nor copies gradients for a converted model."""

import contextlib
import copy
import warnings

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from nhwc.conversion import broadcast, convert, restore
from nhwc.conversion.broadcast import broadcast_alone
from nhwc.errors import ConversionError

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")

OPTIONS = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"forward_sync_buffers": False}]


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def all_warnings():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    finally:
        torch.set_warn_always(before)


def complaints(model, x, **options):
    """Warnings about buckets from two steps of the wrapped model."""
    with all_warnings() as caught:
        wrapped = DistributedDataParallel(model, **options)
        for _ in range(2):
            wrapped(x).sum().backward()
    return [str(w.message) for w in caught if "bucket" in str(w.message)]


def network():
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 1, 1), nn.Conv2d(1, 4, 3))


LONE = {
    "depthwise": lambda: nn.Conv2d(8, 8, 3, groups=8, bias=False),
    "one_input_channel": lambda: nn.Conv2d(1, 8, 3, bias=False),
    "pointwise": lambda: nn.Conv2d(8, 4, 1, bias=False),
    "row": lambda: nn.Conv2d(1, 8, (1, 3), bias=False),
    "one": lambda: nn.Conv2d(1, 1, 1, bias=False),
    "dense": lambda: nn.Conv2d(8, 4, 3, bias=False),
    "with_statistics": lambda: nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8, affine=False)),
    "volume": lambda: nn.Conv3d(1, 8, 3, bias=False),
}


def batch(model, last):
    weight = next(model.parameters())
    first = model[0] if isinstance(model, nn.Sequential) else model
    x = torch.randn(2, first.in_channels, *(6,) * (weight.dim() - 2))
    return x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d) if last else x


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("last", [True, False], ids=["channels_last", "contiguous"])
def test_a_converted_model_is_silent(group, last, options):
    model = convert(network())
    assert complaints(model, batch(model, last), **options) == []
    assert [p.grad.stride() for p in model.parameters()] == [p.stride() for p in model.parameters()]


def test_the_unconverted_model_warns(group):
    """Without this the silence above would prove nothing."""
    model = network()
    assert complaints(model, batch(model, True))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("last", [True, False], ids=["channels_last", "contiguous"])
@pytest.mark.parametrize("name", LONE)
def test_a_weight_broadcast_alone_neither_raises_nor_warns(group, name, last, options):
    model = LONE[name]()
    convert(model)
    assert complaints(model, batch(model, last), **options) == []
    for parameter in model.parameters():
        assert parameter.grad.stride() == parameter.stride()


def test_canonical_strides_alone_would_raise(group):
    """The hazard itself: when torch stops raising, the special case can go."""
    model = LONE["depthwise"]()
    model.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="single memory location") as caught:
        DistributedDataParallel(model)
    # The half-made wrapper lives on in the traceback, as it does in a notebook.
    convert(model)
    assert caught.traceback
    DistributedDataParallel(model)


def copies(model, x):
    """How often a step of ``model`` copies, inside kernels too."""
    model(x).sum().backward()
    gradient = torch.randn_like(model(x))
    model.zero_grad()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        model(x).backward(gradient)
    return [
        event.name for event in profiler.events() if event.name in ("aten::clone", "aten::contiguous", "aten::copy_")
    ]


@pytest.mark.parametrize("name", ["depthwise", "one_input_channel", "pointwise"])
def test_kernels_copy_no_more_for_a_weight_broadcast_alone(name):
    model, canonical = convert(LONE[name]()), LONE[name]().to(memory_format=torch.channels_last)
    assert model.weight.stride() != canonical.weight.stride()
    x = batch(model, True)
    assert copies(model, x) == copies(canonical, x)


def test_the_gradient_hook_comes_once_goes_with_restore_and_returns_on_a_copy():
    model = LONE["depthwise"]()
    x = batch(model, True)
    convert(convert(model))
    assert len(model.weight._backward_hooks) == 1
    other = convert(copy.deepcopy(model))
    other(x).sum().backward()
    assert other.weight.grad.stride() == other.weight.stride() == (9, 9, 3, 1)
    restore(model)
    assert not model.weight._backward_hooks
    assert not convert(LONE["depthwise"](), "contiguous").weight._backward_hooks
    model(x).sum().backward()
    assert model.weight.grad.stride() == (9, 1, 3, 1)


def test_second_order_gradients_pass_the_hook():
    model = convert(LONE["depthwise"]())
    x = batch(model, True)
    (gradient,) = torch.autograd.grad(model(x).pow(3).sum(), model.weight, create_graph=True)
    gradient.sum().backward()
    plain = LONE["depthwise"]()
    plain.load_state_dict(model.state_dict())
    (expected,) = torch.autograd.grad(plain(x).pow(3).sum(), plain.weight, create_graph=True)
    expected.sum().backward()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad)


def test_groups_follow_type_and_size(monkeypatch):
    monkeypatch.setattr(broadcast, "GROUP_BYTES", 100)
    small, large, half = torch.empty(10), torch.empty(25), torch.empty(5, dtype=torch.float16)
    last, buffer = torch.empty(1), torch.empty(1)
    assert broadcast_alone([small, large, half, last], [buffer]) == {id(half), id(last)}
    assert broadcast_alone([large, small, last], []) == {id(large)}


def test_a_wrapped_model_is_refused_from_outside_and_inside(group):
    model = network()
    wrapped = DistributedDataParallel(model)
    with pytest.raises(ConversionError, match=r"DistributedDataParallel holds the model; .* before wrapping it"):
        convert(wrapped)
    with pytest.raises(ConversionError, match=r"1: DistributedDataParallel holds"):
        convert(nn.Sequential(nn.Conv2d(3, 3, 3), wrapped))
    with pytest.raises(ConversionError, match=r"0\.weight: DistributedDataParallel already wraps it"):
        convert(model)
    assert model[0].weight.stride() == (9, 9, 3, 1)
    del wrapped
    convert(model)


def test_fully_sharded_models_are_refused(group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ConversionError, match="FSDPModule holds the model; fully_shard takes contiguous"):
        convert(model)


def test_sharded_parameters_are_refused_by_name(group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    model[0].weight = nn.Parameter(distribute_tensor(model[0].weight.detach(), init_device_mesh("cpu", (1,))))
    with pytest.raises(ConversionError, match=r"0\.weight: a DTensor holds its values"):
        convert(model)
