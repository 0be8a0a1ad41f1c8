"""Which tensors convert changes, to which strides, and that restore undoes it exactly."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, prune
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm

from nhwc.conversion import convert, moves, restore
from nhwc.errors import ConversionError, FormatError
from nhwc.strides import strides_for


def strides(model):
    return {name: tensor.stride() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def snapshot(model):
    """All that restore must bring back."""
    return (
        {name: (id(t), t.data_ptr(), t.stride(), t._version) for name, t in model.state_dict(keep_vars=True).items()},
        dict(model._forward_pre_hooks),
        dict(model._forward_hooks),
        dict(model._load_state_dict_post_hooks),
        set(vars(model)),
    )


class Hybrid(nn.Module):
    """Frames through a 2-D convolution, the clip through a 3-D one."""

    def __init__(self):
        super().__init__()
        self.frame = nn.Conv2d(2, 4, 3, padding=1)
        self.clip = nn.Conv3d(4, 3, 3, padding=1)

    def forward(self, x):
        n, c, t, h, w = x.shape
        frames = self.frame(x.transpose(1, 2).reshape(n * t, c, h, w))
        return self.clip(frames.reshape(n, t, 4, h, w).transpose(1, 2))


def test_each_layer_of_a_mixed_model_gets_its_format():
    model, x = Hybrid(), torch.randn(2, 2, 3, 8, 8)
    expected = model(x)
    assert convert(model) is model
    assert model.frame.weight.stride() == (18, 1, 6, 2)
    assert model.clip.weight.stride() == (108, 1, 36, 12, 4)
    torch.testing.assert_close(model(x), expected)
    restore(model)
    assert model.frame.weight.stride() == (18, 9, 3, 1)
    assert model.clip.weight.stride() == (108, 27, 9, 3, 1)


@pytest.mark.parametrize("kernel", [1, 3, (1, 3)])
@pytest.mark.parametrize(
    ("kind", "memory_format"),
    [
        (nn.Conv2d, "channels_last"),
        (nn.ConvTranspose2d, "channels_last"),
        (nn.Conv3d, "channels_last_3d"),
        (nn.ConvTranspose3d, "channels_last_3d"),
    ],
)
@pytest.mark.parametrize("channels", [(3, 4, 1), (1, 4, 1), (4, 4, 4), (1, 1, 1)])
def test_every_kind_of_weight_gets_canonical_strides(kind, memory_format, kernel, channels):
    if isinstance(kernel, tuple) and "3d" in kind.__name__:
        kernel = (1, 1, 3)
    inside, outside, groups = channels
    model = kind(inside, outside, kernel, groups=groups)
    before, values = strides(model), model.weight.detach().clone()
    convert(model)
    assert model.weight.stride() == strides_for(model.weight.shape, memory_format)
    assert torch.equal(model.weight, values)
    restore(model)
    assert strides(model) == before


def test_a_one_channel_convolution_computes_the_same():
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    x = torch.randn(1, 1, 12, 12)
    expected = model(x)
    convert(model)
    assert model[0].weight.stride() == (9, 1, 3, 1)
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected)


def test_ambiguous_weights_are_restrided_without_a_copy():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    addresses = [p.data_ptr() for p in model.parameters()]
    convert(model)
    assert [p.data_ptr() for p in model.parameters()] == addresses


def test_explicit_formats_reach_their_rank_only():
    model = Hybrid()
    convert(model, torch.channels_last_3d)
    assert model.frame.weight.stride() == (18, 9, 3, 1)
    assert model.clip.weight.stride() == (108, 1, 36, 12, 4)
    convert(model, "channels_last")
    assert model.frame.weight.stride() == (18, 1, 6, 2)


def test_contiguous_undoes_the_stock_conversion_and_restore_redoes_it():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    convert(model, "contiguous")
    assert model.weight.stride() == (27, 9, 3, 1)
    restore(model)
    assert model.weight.stride() == (27, 1, 9, 3)


def test_a_format_that_no_weight_can_take_is_an_error():
    with pytest.raises(ConversionError, match="no weight of this model can be channels_last_3d; use 'auto'"):
        convert(nn.Conv2d(3, 4, 3), "channels_last_3d")
    with pytest.raises(FormatError, match="unknown memory format"):
        convert(nn.Conv2d(3, 4, 3), "nhwc")


def test_twice_is_once_and_restore_knows_the_first_strides():
    model = Hybrid()
    before = strides(model)
    once = strides(convert(model))
    addresses = [p.data_ptr() for p in model.parameters()]
    hooks = len(model._load_state_dict_post_hooks)
    assert strides(convert(model)) == once
    assert [p.data_ptr() for p in model.parameters()] == addresses
    assert len(model._load_state_dict_post_hooks) == hooks
    convert(model, "contiguous")
    restore(model)
    assert strides(model) == before


def test_restore_refuses_what_was_never_converted():
    model = nn.Conv2d(3, 4, 3)
    with pytest.raises(ConversionError, match="this Conv2d was not converted"):
        restore(model)
    restore(convert(model))
    with pytest.raises(ConversionError, match="was not converted"):
        restore(model)


def test_restore_brings_back_unusual_strides():
    model = nn.Conv2d(3, 4, 3)
    model.weight = nn.Parameter(torch.randn(3, 3, 4, 6)[..., ::2].permute(2, 3, 0, 1))
    before, values = model.weight.stride(), model.weight.detach().clone()
    convert(model)
    assert model.weight.stride() == (27, 1, 9, 3)
    restore(model)
    assert model.weight.stride() == before
    assert torch.equal(model.weight, values)


def test_restore_leaves_layers_added_since_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    convert(model)
    model[0] = nn.Conv2d(5, 4, 3)
    model.append(nn.Conv2d(4, 4, 3))
    restore(model)
    assert model[0].weight.stride() == (45, 9, 3, 1)
    assert model[1].weight.stride() == (36, 9, 3, 1)


def test_restore_leaves_nothing_behind():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8))
    before = snapshot(model)
    convert(model, inputs=True, outputs="contiguous")
    restore(model)
    assert snapshot(model) == before


def test_identity_gradients_and_frozen_weights():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].requires_grad_(False)
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    parameters, gradient = list(model.parameters()), model[0].weight.grad
    values = gradient.clone()
    convert(model)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert model[0].weight.grad is gradient
    assert gradient.stride() == (27, 1, 9, 3)
    assert torch.equal(gradient, values)
    assert model[1].weight.stride() == (36, 1, 12, 4)
    assert not model[1].weight.requires_grad
    restore(model)
    assert gradient.stride() == (27, 9, 3, 1)


def test_tied_weights_stay_tied():
    model = nn.ModuleDict({"a": nn.Conv2d(3, 3, 3), "b": nn.Conv2d(3, 3, 3), "c": nn.Conv2d(3, 3, 3)})
    model["b"].weight = model["a"].weight
    model["c"].weight = nn.Parameter(model["a"].weight.detach())
    convert(model)
    assert model["b"].weight is model["a"].weight
    assert model["c"].weight.data_ptr() == model["a"].weight.data_ptr()
    assert model["c"].weight.stride() == model["a"].weight.stride() == (27, 1, 9, 3)
    restore(model)
    assert model["c"].weight.data_ptr() == model["a"].weight.data_ptr()
    assert model["c"].weight.stride() == (27, 9, 3, 1)


class HwioConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3, 8, 8))
        self.register_buffer("position", torch.randn(1, 8, 6, 6))
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return nn.functional.conv2d(x + self.position, self.kernel.permute(3, 2, 0, 1), padding=1)


def test_other_tensors_stay_unless_named():
    model = convert(nn.Sequential(HwioConvolution()))
    assert model[0].kernel.stride() == (192, 64, 8, 1)
    assert model[0].position.stride() == (288, 36, 6, 1)
    convert(model, also="*.position")
    assert model[0].position.stride() == (288, 1, 48, 8)
    assert model[0].kernel.stride() == (192, 64, 8, 1)
    convert(model)
    assert model[0].position.stride() == (288, 1, 48, 8)
    restore(model)
    assert model[0].position.stride() == (288, 36, 6, 1)


@pytest.mark.parametrize(
    ("also", "message"),
    [(["0.pos"], "also='0.pos' matches no parameter"), (["0.scale"], "0.scale: it is 1-D; 4-D and 5-D")],
)
def test_names_that_cannot_be_converted(also, message):
    with pytest.raises(ConversionError, match=message):
        convert(nn.Sequential(HwioConvolution()), also=also)


def test_deformable_convolution_is_left_alone():
    ops = pytest.importorskip("torchvision.ops")
    model = convert(ops.DeformConv2d(3, 4, 3))
    assert model.weight.stride() == (27, 9, 3, 1)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated")
@pytest.mark.parametrize(
    "wrap",
    [old_spectral_norm, parametrizations.spectral_norm, lambda c: prune.random_unstructured(c, "weight", 0.3)],
    ids=["old_spectral_norm", "spectral_norm", "pruning"],
)
def test_computed_weights_come_out_in_the_format(wrap):
    model, x = wrap(nn.Conv2d(4, 8, 3)), torch.randn(1, 4, 6, 6)
    model.eval()
    expected, before = model(x), strides(model)
    convert(model)
    torch.testing.assert_close(model(x), expected)
    assert model.weight.stride() == (36, 1, 12, 4)
    restore(model)
    assert strides(model) == before


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("wrap", [old_weight_norm, parametrizations.weight_norm], ids=["old", "parametrized"])
def test_weight_norm_is_left_alone_because_its_kernel_answers_contiguous(wrap):
    model, x = wrap(nn.Conv2d(4, 8, 3)), torch.randn(1, 4, 6, 6)
    expected, before = model(x), strides(model)
    convert(model, inputs=True)
    torch.testing.assert_close(model(x), expected)
    assert strides(model) == before


def test_meta_and_fake_parameters():
    with torch.device("meta"):
        model = nn.Conv2d(3, 4, 3)
    convert(model)
    assert model.weight.stride() == (27, 1, 9, 3)
    assert model.weight.is_meta
    with FakeTensorMode():
        fake = nn.Conv2d(3, 4, 3)
    convert(fake)
    assert fake.weight.stride() == (27, 1, 9, 3)
    restore(fake)
    assert fake.weight.stride() == (27, 9, 3, 1)


def test_inference_mode_changes_neither_kind_of_parameter():
    model = nn.Conv2d(3, 4, 3)
    with torch.inference_mode():
        inference = nn.Conv2d(3, 4, 3)
        convert(model)
    convert(inference)
    assert inference.weight.is_inference()
    assert inference.weight.stride() == model.weight.stride() == (27, 1, 9, 3)
    model(torch.randn(1, 3, 4, 4)).sum().backward()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_packed_quantized_convolutions_have_nothing_to_convert():
    from torch.ao.nn.quantized import Conv2d

    model = nn.Sequential(nn.Conv2d(3, 3, 3), Conv2d(3, 4, 3))
    convert(model)
    assert model[0].weight.stride() == (27, 1, 9, 3)


def test_quantization_aware_training_modules():
    from torch.ao.nn.qat import Conv2d
    from torch.ao.quantization import get_default_qat_qconfig

    model = convert(Conv2d(3, 4, 3, qconfig=get_default_qat_qconfig("fbgemm")))
    assert model.weight.stride() == (27, 1, 9, 3)


def lazy():
    return nn.Sequential(nn.Conv2d(3, 3, 3), nn.LazyConv2d(3, 3))


def with_weight(weight):
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 8, 3))
    model[1].weight = nn.Parameter(weight)
    return model


def flat():
    model = with_weight(torch.randn(8, 3, 3, 3))
    flattened = torch.randn(2, 8, 3, 3, 3)
    model[0].weight, model[1].weight = nn.Parameter(flattened[0]), nn.Parameter(flattened[1])
    return model


class Doubled(torch.Tensor):
    """A wrapper subclass, as sharded and quantized weights are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        raise NotImplementedError(func)


def scripted():
    return nn.Sequential(nn.Conv2d(3, 3, 3), torch.jit.script(nn.Conv2d(3, 8, 3)))


REFUSED = {
    "lazy": (lazy, "1.weight: it is not initialized yet; run the model once"),
    "expanded": (lambda: with_weight(torch.randn(1, 3, 3, 3).expand(8, 3, 3, 3)), "1.weight: it is expanded"),
    "sparse": (lambda: with_weight(torch.randn(8, 3, 3, 3).to_sparse()), "1.weight: a sparse_coo tensor"),
    "wrapper": (lambda: with_weight(Doubled(torch.randn(8, 3, 3, 3))), "1.weight: a Doubled holds its values"),
    "flat": (flat, "0.weight: it shares memory with 1.weight"),
    "shared": (lambda: with_weight(torch.randn(8, 3, 3, 3)).share_memory(), "0.weight: other processes may map"),
    "scripted": (scripted, "1: a TorchScript module"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_parameter_and_leave_the_model(case):
    make, message = REFUSED[case]
    model = make()
    before = model[0].weight.stride(), model[0].weight.data_ptr(), set(vars(model)), len(model._forward_pre_hooks)
    with pytest.raises(ConversionError, match=message):
        convert(model, inputs=True)
    assert before == (
        model[0].weight.stride(), model[0].weight.data_ptr(), set(vars(model)), len(model._forward_pre_hooks)
    )  # fmt: skip


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_a_failure_midway_rolls_everything_back(monkeypatch, error):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    model(torch.randn(1, 3, 9, 9)).sum().backward()
    before = snapshot(model), model[0].weight.grad.stride()
    calls = []

    def failing(*args):
        calls.append(args)
        if len(calls) == 4:
            raise error
        return with_strides(*args)

    with_strides = moves.with_strides
    monkeypatch.setattr(moves, "with_strides", failing)
    expected = ConversionError if isinstance(error, RuntimeError) else KeyboardInterrupt
    with pytest.raises(expected):
        convert(model, inputs=True)
    assert (snapshot(model), model[0].weight.grad.stride()) == before
    monkeypatch.undo()
    convert(model)
    converted = snapshot(model)
    calls.clear()
    monkeypatch.setattr(moves, "with_strides", failing)
    with pytest.raises(expected):
        restore(model)
    assert snapshot(model) == converted
    record = dict(vars(model)["_nhwc_conversion"])
    calls.clear()
    with pytest.raises(expected):
        convert(model, "contiguous")
    assert snapshot(model) == converted
    assert vars(model)["_nhwc_conversion"] == record


def test_only_modules_are_converted():
    with pytest.raises(ConversionError, match=r"expected a torch\.nn\.Module, got function"):
        convert(lambda x: x)
