"""layout_of and to_format on real tensors: values, strides, storage and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from nhwc.errors import FormatError
from nhwc.formats import layout_of, to_format
from nhwc.strides import strides_for

TORCH = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int8, torch.uint8, torch.int64, torch.uint16, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
sizes = st.sampled_from((0, 1, 1, 2, 3, 5))
shapes = st.tuples(sizes, sizes, sizes, sizes) | st.tuples(sizes, sizes, sizes, sizes, sizes)


def filled(shape, dtype=torch.float32):
    count = int(torch.Size(shape).numel())
    return (torch.arange(count) % 7).reshape(shape).to(dtype)


def disguised(tensor):
    """The same bytes with misleading strides where the size is 1."""
    strides = [977 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(tensor.shape, strides)


def variants(data, shape):
    channels_last = TORCH[{4: "channels_last", 5: "channels_last_3d"}[len(shape)]]
    base = filled(shape)
    pick = data.draw(st.sampled_from(("plain", "last", "disguised", "sliced", "expanded", "transposed", "conj", "neg")))
    if pick == "last":
        return base.to(memory_format=channels_last)
    if pick == "disguised":
        return disguised(base.to(memory_format=channels_last))
    if pick == "sliced":
        return filled([size + 1 for size in shape]).to(memory_format=channels_last)[:, 1:][1:, :, 1:, 1:]
    if pick == "expanded":
        return filled((1, *shape[1:])).expand(max(shape[0], 2), *shape[1:])
    if pick == "transposed":
        return base.transpose(1, -1)
    if pick == "conj":
        return torch.complex(base, base + 1).to(memory_format=channels_last).conj()
    if pick == "neg":
        return torch.complex(base, base + 1).conj().imag
    return base


@given(st.data(), shapes)
def test_to_format_gives_canonical_strides_and_equal_values(data, shape):
    tensor = variants(data, shape)
    for name in ("contiguous", {4: "channels_last", 5: "channels_last_3d"}[len(shape)]):
        result = to_format(tensor, name)
        assert result.stride() == strides_for(tensor.shape, name)
        assert result.is_contiguous(memory_format=TORCH[name])
        assert torch.equal(result, tensor)
        assert result.dtype == tensor.dtype
        free = name in layout_of(tensor).free
        shared = result.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        if tensor.numel():
            assert shared == free
        assert layout_of(result).canonical == strides_for(tensor.shape, name) or layout_of(result).kind == "ambiguous"


@given(st.data(), shapes)
def test_layout_of_agrees_with_torch(data, shape):
    tensor = variants(data, shape)
    found = layout_of(tensor)
    last = {4: "channels_last", 5: "channels_last_3d"}[tensor.dim()]
    both = (tensor.is_contiguous(), tensor.is_contiguous(memory_format=TORCH[last]))
    expected = {(True, True): "ambiguous", (True, False): "contiguous", (False, True): last}
    if both in expected:
        assert found.kind == expected[both]
    else:
        assert found.kind in ("strided", "not_dense", "overlapping")
    assert found.strides == tensor.stride()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 2, 4, 5), (2, 1, 2, 4, 5)]
)
def test_every_dtype_goes_there_and_back(dtype, shape):
    tensor = filled(shape, dtype)
    name = {4: "channels_last", 5: "channels_last_3d"}[len(shape)]
    there = to_format(tensor, name)
    back = to_format(there, "contiguous")
    assert there.dtype == back.dtype == dtype
    assert there.stride() == strides_for(shape, name)
    assert back.stride() == tensor.stride()
    assert there.tolist() == back.tolist() == tensor.tolist()


def test_a_tensor_already_right_is_returned_itself():
    tensor = torch.empty(2, 3, 4, 4, memory_format=torch.channels_last)
    assert to_format(tensor, torch.channels_last) is tensor


def test_one_image_of_a_batch_is_restrided_for_free():
    batch = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    one = batch[1].unsqueeze(0)
    assert one.stride() == (3, 1, 24, 3)
    assert not layout_of(one).is_canonical
    result = to_format(one, "channels_last")
    assert result.stride() == (192, 1, 24, 3)
    assert result.data_ptr() == one.data_ptr()


@pytest.mark.parametrize("stride", [1, 7])
def test_all_sizes_one_is_canonical_in_both_formats(stride):
    tensor = torch.full((1, 1, 1, 1), 3.0).as_strided((1, 1, 1, 1), (stride,) * 4)
    for name in ("contiguous", "channels_last"):
        result = to_format(tensor, name)
        assert result.stride() == (1, 1, 1, 1)
        assert result.data_ptr() == tensor.data_ptr()


FREE = [(2, 1, 3, 3), (2, 3, 1, 1), (1, 1, 1, 1), (2, 1, 2, 2, 2)]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("shape", [*FREE, (2, 3, 2, 2), (2, 2, 2, 1, 2)])
def test_gradients_first_and_second_order(shape):
    name = {4: "channels_last", 5: "channels_last_3d"}[len(shape)]
    tensor = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def step(value):
        return to_format(value, name).sin() * 2

    assert torch.autograd.gradcheck(step, tensor, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(step, tensor)


@pytest.mark.parametrize("shape", FREE)
def test_a_free_view_writes_nothing_in_backward(shape):
    name = {4: "channels_last", 5: "channels_last_3d"}[len(shape)]
    tensor = torch.randn(shape, requires_grad=True)
    result = to_format(tensor, name)
    gradient = torch.ones_like(result)
    (arrived,) = torch.autograd.grad(result, tensor, gradient)
    assert arrived.data_ptr() == gradient.data_ptr()


def test_the_free_view_follows_the_original_in_place():
    tensor = torch.zeros(2, 1, 3, 3)
    to_format(tensor, "channels_last").add_(1)
    assert tensor.sum() == 18


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_autograd(mode):
    tensor = torch.randn(2, 1, 3, 3, requires_grad=True)
    with mode():
        result = to_format(tensor, "channels_last")
    assert result.stride() == (9, 1, 3, 1)
    assert result.data_ptr() == tensor.data_ptr()
    assert result.grad_fn is None


def test_huge_tensors_on_meta():
    tensor = torch.empty(2**12, 3, 2**14, 2**14, device="meta")
    assert to_format(tensor, "channels_last").stride() == strides_for(tensor.shape, "channels_last")


def test_fake_tensors():
    with FakeTensorMode():
        assert to_format(torch.empty(2, 3, 4, 4), "channels_last").stride() == (48, 1, 12, 3)
        assert to_format(torch.empty(2, 1, 4, 4), "channels_last").stride() == (16, 1, 4, 1)


def test_inside_vmap_and_compile():
    mapped = torch.func.vmap(lambda x: to_format(x, "channels_last") + 1)(torch.zeros(3, 2, 1, 4, 4))
    assert torch.equal(mapped, torch.ones(3, 2, 1, 4, 4))
    compiled = torch.compile(lambda x: to_format(x, "channels_last"), fullgraph=True, backend="eager")
    assert compiled(torch.zeros(2, 3, 4, 4)).stride() == (48, 1, 12, 3)


def test_a_tensor_subclass_keeps_its_class():
    class Image(torch.Tensor):
        pass

    tensor = torch.zeros(2, 3, 4, 4).as_subclass(Image)
    result = to_format(tensor, "channels_last")
    assert type(result) is Image
    assert result.stride() == (48, 1, 12, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.zeros(3, 4, 4), "channels_last needs a 4-D tensor, got 3-D"),
        (lambda: torch.zeros(2, 3, 4, 4).to_sparse(), "a sparse_coo tensor has no strides"),
        (lambda: torch.zeros(2, 3, 4, 4).to_mkldnn(), "has no strides"),
        (lambda: torch.nested.nested_tensor([torch.zeros(3, 4, 4)]), "a nested tensor has no strides"),
        (lambda: torch.nn.parameter.UninitializedParameter(), "uninitialized"),
        (lambda: [1, 2], "expected a torch.Tensor, got list"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_to_format_refuses_with_the_reason(make, message):
    with pytest.raises(FormatError, match=message):
        to_format(make(), "channels_last")


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_quantized_tensors():
    per_tensor = torch.quantize_per_tensor(torch.ones(2, 3, 4, 4), 0.5, 0, torch.qint8)
    result = to_format(per_tensor, "channels_last")
    assert result.stride() == (48, 1, 12, 3)
    assert torch.equal(result.dequantize(), torch.ones(2, 3, 4, 4))
    per_channel = torch.quantize_per_channel(torch.ones(2, 1, 4, 4), torch.ones(2), torch.zeros(2), 0, torch.qint8)
    with pytest.raises(FormatError, match="quantized per channel"):
        to_format(per_channel, "channels_last")
