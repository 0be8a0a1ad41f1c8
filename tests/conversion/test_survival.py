"""What a converted model goes through, and comes out of in its format."""

import copy
import io

import pytest
import torch
from torch import nn

from nhwc.conversion import contiguous_state_dict, convert, restore
from nhwc.strides import strides_for

LAST = {"0.weight": (27, 1, 9, 3), "1.weight": (9, 1, 3, 1), "2.weight": (8, 1, 8, 8)}
FIRST = {"0.weight": (27, 9, 3, 1), "1.weight": (9, 9, 3, 1), "2.weight": (8, 1, 1, 1)}


def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))


def weights(model):
    return {name: p.stride() for name, p in model.named_parameters() if p.dim() == 4}


def save_and_load(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def shared(model):
    return model.share_memory()


STEPS = {
    "load": lambda m: (m.load_state_dict(build().state_dict()), m)[1],
    "assign": lambda m: (m.load_state_dict(build().state_dict(), assign=True), m)[1],
    "deepcopy": copy.deepcopy,
    "save": save_and_load,
    "share_memory": shared,
    "half": lambda m: m.half(),
    "double": lambda m: m.to(torch.float64),
    "to_empty": lambda m: m.to_empty(device="meta"),
    "train": lambda m: m.eval().train().requires_grad_(False).requires_grad_(True),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_format_survives(step):
    assert weights(convert(build())) == LAST
    assert weights(STEPS[step](convert(build()))) == LAST


@pytest.mark.parametrize("step", [step for step in STEPS if step != "share_memory"])
def test_restore_works_afterwards(step):
    model = STEPS[step](convert(build()))
    assert weights(restore(model)) == FIRST
    # What restore took off must be off: a contiguous file stays contiguous.
    model.load_state_dict(build().to(next(model.parameters()).dtype).state_dict(), assign=True)
    assert weights(model) == FIRST


def test_a_copy_and_its_original_are_restored_apart():
    model = convert(build())
    other = copy.deepcopy(model)
    restore(other)
    assert (weights(model), weights(other)) == (LAST, FIRST)
    restore(model)
    assert weights(model) == FIRST


def test_the_record_is_plain_data():
    record = vars(convert(build()))["_nhwc_conversion"]
    buffer = io.BytesIO()
    torch.save(record, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True) == record


def test_the_state_dict_has_no_new_names():
    plain = build()
    assert list(convert(build()).state_dict()) == list(plain.state_dict())


def test_a_file_from_a_converted_model_loads_into_a_plain_one():
    model, plain = convert(build()), build()
    plain.load_state_dict(model.state_dict())
    assert weights(plain) == FIRST
    for got, want in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(got, want)


def test_an_assigned_file_keeps_its_values_and_named_tensors_follow():
    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.position = nn.Parameter(torch.randn(1, 8, 4, 4))

    file = Positioned().state_dict()
    model = convert(convert(Positioned(), also=["position"]))
    model.load_state_dict(file, assign=True)
    assert model.position.stride() == strides_for((1, 8, 4, 4), "channels_last")
    assert torch.equal(model.position, file["position"])
    assert torch.equal(model.conv.weight, file["conv.weight"])
    assert file["position"].stride() == (128, 16, 4, 1)


def test_large_models_start_on_meta():
    with torch.device("meta"):
        model = build()
    convert(model)
    model.load_state_dict(build().state_dict(), assign=True)
    assert weights(model) == LAST
    assert not model[0].weight.is_meta


def test_a_part_loaded_on_its_own_is_brought_back_by_another_call():
    model = convert(nn.Sequential(build()))
    model[0].load_state_dict(build().state_dict(), assign=True)
    assert weights(model[0]) == FIRST
    assert weights(convert(model)[0]) == LAST


def raw(tensor):
    """What a reader sees that takes the bytes of the storage in order."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (count,), (1,))


def test_contiguous_state_dict_suits_readers_of_raw_bytes():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model[1].weight = nn.Parameter(torch.arange(8.0)[4:])
    convert(model)
    buffer = io.BytesIO()
    torch.save(contiguous_state_dict(model), buffer)
    buffer.seek(0)
    stored = torch.load(buffer)
    for name, tensor in model.state_dict().items():
        assert torch.equal(stored[name], tensor)
        assert torch.equal(raw(stored[name]), tensor.flatten())
    assert not torch.equal(raw(model.state_dict()["0.weight"]), model[0].weight.flatten())
    assert model[0].weight.stride() == (27, 1, 9, 3)


def test_contiguous_state_dict_keeps_ties_versions_and_sharing():
    model = nn.ModuleDict({"a": nn.Conv2d(3, 3, 3), "b": nn.Conv2d(3, 3, 3), "norm": nn.BatchNorm2d(3)})
    model["b"].weight = model["a"].weight
    convert(model)
    state = contiguous_state_dict(model)
    assert state["a.weight"] is state["b.weight"]
    assert state._metadata == model.state_dict()._metadata
    assert state["a.bias"].data_ptr() == model["a"].bias.data_ptr()
    assert model["a"].weight.stride() == (27, 1, 9, 3)
    assert not state["a.weight"].requires_grad


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_scripting_tracing_and_export_take_a_converted_model():
    model, x = convert(build()).eval(), torch.randn(2, 3, 8, 8)
    expected = model(x)
    for compiled in (torch.jit.script(model), torch.jit.trace(model, x), torch.export.export(model, (x,)).module()):
        torch.testing.assert_close(compiled(x), expected)
    convert(model, inputs=True)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)
