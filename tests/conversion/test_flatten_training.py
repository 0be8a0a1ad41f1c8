"""What a model with convert(flatten=...) goes through: optimizers, checkpoints, compilers, wrappers, failures."""

import copy
import io
import warnings

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from nhwc.conversion import contiguous_state_dict, convert, moves, restore
from nhwc.conversion.image_linear import ImageLinear
from nhwc.errors import ConversionError

BATCH = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LAST = BATCH.to(memory_format=torch.channels_last)
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "sgd_fused": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True, fused=True),
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(6 * 16, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.conv(x).relu()), 1))


def build(seed=0):
    torch.manual_seed(seed)
    return Net().double()


def train(model, optimizer, steps, x=LAST):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def assert_same(model, reference):
    """Over state dicts, which have the usual shapes on both sides."""
    wanted = reference.state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.clone(), wanted[name].clone(), rtol=1e-9, atol=1e-9)


def through_a_file(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_with_state_follows_there_and_back(name):
    model, reference = build(), build()
    optimizer, other = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](reference.parameters())
    train(model, optimizer, 2)
    train(reference, other, 6)
    convert(model, optimizer=optimizer, flatten=BATCH)
    assert {tuple(v.shape) for v in optimizer.state[model.fc.weight].values() if v.dim()} == {(5, 6, 4, 4)}
    train(model, optimizer, 2)
    restore(model)
    assert {tuple(v.shape) for v in optimizer.state[model.fc.weight].values() if v.dim()} == {(5, 96)}
    train(model, optimizer, 2)
    assert_same(model, reference)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_checkpoints_of_model_and_optimizer_have_the_usual_shapes(name):
    # convolutions in one format: fused optimizers compute wrong updates on state in another
    model, plain = build(), convert(build(1))
    optimizer, other = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](plain.parameters())
    convert(model, flatten=BATCH)
    train(model, optimizer, 2)
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    plain.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    train(plain, other, 2)
    train(model, optimizer, 2)
    assert_same(model, plain)
    saved = through_a_file({"model": plain.state_dict(), "optimizer": other.state_dict()})
    train(plain, other, 2)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(model, optimizer, 2)
    assert_same(model, plain)
    assert {v.stride() for v in optimizer.state[model.fc.weight].values() if v.dim()} == {(96, 1, 24, 6)}


def test_a_later_optimizer_is_found_by_another_call():
    model, reference = convert(build(), flatten=BATCH), build()
    optimizer, other = OPTIMIZERS["adam_fused"](model.parameters()), OPTIMIZERS["adam_fused"](reference.parameters())
    train(reference, other, 2)
    model.load_state_dict(reference.state_dict())
    optimizer.load_state_dict(copy.deepcopy(other.state_dict()))
    convert(model, optimizer=optimizer)
    train(model, optimizer, 2)
    train(reference, other, 2)
    assert_same(model, reference)


@pytest.mark.parametrize("name", ["sgd", "adam_fused"])
def test_state_that_would_stay_behind_is_refused(name):
    model = build()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, 1)
    convert(model, optimizer=optimizer)
    later = OPTIMIZERS[name](model.parameters())
    train(model, later, 1)
    with pytest.raises(ConversionError, match=r"fc\.weight: a live \w+ keeps its \w+ in the old strides"):
        convert(model, flatten=BATCH)
    assert type(model.fc) is nn.Linear
    convert(model, optimizer=later, flatten=BATCH)
    stray = OPTIMIZERS[name](model.parameters())
    train(model, stray, 1)
    with pytest.raises(ConversionError, match=r"conv\.weight: a live"):
        restore(model)
    assert type(model.fc) is ImageLinear
    restore(model, optimizer=stray)


@pytest.mark.parametrize("kind", ["Adafactor", "Muon", "LBFGS"])
def test_optimizers_of_matrices_are_refused(kind):
    if not hasattr(torch.optim, kind):
        pytest.skip(f"torch without {kind}")
    model = convert(build())
    optimizer = getattr(torch.optim, kind)([model.fc.weight])
    with pytest.raises(ConversionError, match=rf"fc\.weight: {kind}"):
        convert(model, flatten=BATCH)
    assert type(model.fc) is nn.Linear
    assert model.fc.weight.shape == (5, 96)
    assert optimizer.state_dict()["state"] == {}


def test_state_dicts_have_the_usual_order_and_refuse_to_be_written_to():
    model, plain = convert(build(), flatten=BATCH), build()
    state = model.state_dict()
    assert list(state) == list(plain.state_dict())
    for name, value in plain.state_dict().items():
        assert torch.equal(state[name], value)
        assert torch.equal(contiguous_state_dict(model)[name], value)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        state["fc.weight"].zero_()  # in a plain model this would reach the weight
    kept = copy.deepcopy(state)
    kept["fc.weight"].zero_()
    assert torch.equal(model.state_dict()["fc.weight"], plain.fc.weight)
    live = model.state_dict(keep_vars=True)["fc.weight"]
    live.sum().backward()
    assert model.fc.weight.grad.shape == (5, 6, 4, 4)


@pytest.mark.parametrize("assign", [False, True])
def test_one_changed_model_loads_from_another(assign):
    model, other = convert(build(), flatten=BATCH), convert(build(1), flatten=BATCH)
    if assign:
        state = {name: value.clone() for name, value in other.state_dict().items()}
        model.load_state_dict(state, assign=True)
    else:
        model.load_state_dict(other.state_dict())
    assert model.fc.weight.stride() == (96, 1, 24, 6)
    assert torch.equal(model(LAST), other(LAST))


def test_a_weight_that_something_computes_is_refused_by_restore():
    model = convert(build(), flatten=BATCH)
    parametrize.register_parametrization(model.fc, "weight", nn.Softplus())
    want = model(LAST)
    with pytest.raises(ConversionError, match=r"fc\.weight: something computes it"):
        restore(model)
    parametrize.remove_parametrizations(model.fc, "weight")
    torch.testing.assert_close(restore(model)(BATCH), want)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_loading_takes_the_usual_order(assign, part):
    model, other = convert(build(), flatten=BATCH), build(1)
    given = other.state_dict()
    (
        model.fc.load_state_dict(other.fc.state_dict(), assign=assign)
        if part
        else model.load_state_dict(given, assign=assign)
    )
    model.conv.load_state_dict(other.conv.state_dict())
    assert given["fc.weight"].shape == (5, 96)
    assert model.fc.weight.stride() == (96, 1, 24, 6)
    torch.testing.assert_close(model(LAST), other(BATCH))
    restore(model)
    assert_same(model, other)


def test_a_weight_that_comes_in_another_shape_or_format_is_used_rightly():
    model, other = convert(build(), flatten=BATCH), build(1)
    want = torch.func.functional_call(build(), {"fc.weight": other.fc.weight}, BATCH)
    torch.testing.assert_close(torch.func.functional_call(model, {"fc.weight": other.fc.weight}, LAST), want)
    image = other.fc.weight.detach().view(5, 6, 4, 4)
    torch.testing.assert_close(torch.func.functional_call(model, {"fc.weight": image}, LAST), want)
    model.fc.weight = nn.Parameter(other.fc.weight.detach().clone())
    torch.testing.assert_close(model(LAST), want)
    assert restore(model).fc.weight.shape == (5, 96)
    torch.testing.assert_close(model(BATCH), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype):
    model, reference = convert(build().float(), flatten=BATCH.float()), build().float()
    with torch.autocast("cpu", dtype):
        got, want = model(LAST.float()), reference(BATCH.float())
    assert got.dtype is dtype
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.slow), True])
def test_compiling_exporting_and_tracing(training):
    model, want = convert(build(), flatten=BATCH).train(training), build()(BATCH)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for x in (LAST, BATCH):
        torch.testing.assert_close(compiled(x), want)
    compiled(LAST).sum().backward()
    build_grad = build()
    build_grad(BATCH).sum().backward()
    torch.testing.assert_close(model.fc.weight.grad.flatten(1), build_grad.fc.weight.grad)
    for program in (
        torch.export.export(model, (LAST,)).module(),
        torch.export.export(model, (LAST,), strict=True).module(),
        torch.jit.trace(model, LAST),
    ):
        torch.testing.assert_close(program(LAST), want)
        torch.testing.assert_close(program(BATCH), want)
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(model)
    torch.testing.assert_close(torch.fx.symbolic_trace(restore(model))(BATCH), want)


def test_a_compiled_part_is_seen_through():
    model = build()
    model.fc = nn.Sequential(nn.LayerNorm(96), model.fc).double()
    model.fc = torch.compile(model.fc, backend="eager")
    with pytest.raises(ConversionError, match="native_layer_norm"):
        convert(model, flatten=BATCH)


class Checkpointed(Net):
    """part: what is computed again in backward, which begins or ends between the image and the Linear."""

    def __init__(self, part, reentrant):
        super().__init__()
        self.part, self.reentrant = part, reentrant

    def forward(self, x):
        if self.part == "front":
            return self.fc(torch.flatten(checkpoint(self.front, x, use_reentrant=self.reentrant), 1))
        flat = torch.flatten(self.front(x), 1)
        return checkpoint(self.fc, flat, use_reentrant=self.reentrant) if self.part == "end" else self.fc(flat)

    def front(self, x):
        return self.pool(self.conv(x).relu())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("part", "reentrant", "message"),
    [
        ("whole", False, None),
        ("whole", True, None),
        ("front", False, None),
        ("front", True, "mismatch|shape"),
        ("end", False, "computed again during backward"),
        ("end", True, "computed again during backward"),
    ],
)
def test_checkpointing_is_right_or_raises(part, reentrant, message):
    torch.manual_seed(0)
    model, reference = Checkpointed(part, reentrant).double(), build()
    convert(model, flatten=BATCH)
    x = LAST.clone().requires_grad_()
    got = checkpoint(model, x, use_reentrant=reentrant) if part == "whole" else model(x)
    torch.testing.assert_close(got, reference(BATCH))
    if message is not None:
        with pytest.raises(RuntimeError, match=message):
            got.sum().backward()
        return
    got.sum().backward()
    reference(BATCH).sum().backward()
    torch.testing.assert_close(model.fc.weight.grad.flatten(1), reference.fc.weight.grad)
    torch.testing.assert_close(model.conv.weight.grad, reference.conv.weight.grad)


@pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")
def test_distributed_data_parallel_neither_warns_nor_differs(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        model, reference = convert(build(), flatten=BATCH), build()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            wrapped = DistributedDataParallel(model)
            for _ in range(2):
                wrapped.zero_grad()
                wrapped(LAST).sum().backward()
        reference(BATCH).sum().backward()
        assert [str(w.message) for w in caught if "bucket" in str(w.message)] == []
        torch.testing.assert_close(model.fc.weight.grad.flatten(1), reference.fc.weight.grad)
        assert model.fc.weight.grad.stride() == model.fc.weight.stride()
    finally:
        dist.destroy_process_group()


def facts(model):
    return (
        {name: (id(p), p.data_ptr(), p.stride(), p.grad is None) for name, p in model.named_parameters()},
        [(type(m), len(m._forward_hooks), len(m._forward_pre_hooks), set(vars(m))) for m in model.modules()],
    )


@pytest.mark.parametrize(
    ("call", "error"), [(call, RuntimeError("out of memory")) for call in (1, 4, 6)] + [(5, KeyboardInterrupt())]
)
def test_a_failure_midway_rolls_everything_back(monkeypatch, error, call):
    model = build()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    train(model, optimizer, 1)
    before = facts(model), [v.stride() for s in optimizer.state.values() for v in s.values()]
    calls = []

    def failing(*args):
        calls.append(args)
        if len(calls) == call:
            raise error
        return with_strides(*args)

    with_strides = moves.with_strides
    monkeypatch.setattr(moves, "with_strides", failing)
    expected = ConversionError if isinstance(error, RuntimeError) else KeyboardInterrupt
    with pytest.raises(expected):
        convert(model, optimizer=optimizer, flatten=BATCH)
    assert (facts(model), [v.stride() for s in optimizer.state.values() for v in s.values()]) == before
    monkeypatch.undo()
    convert(model, optimizer=optimizer, flatten=BATCH)
    changed = facts(model)
    calls.clear()
    monkeypatch.setattr(moves, "with_strides", failing)
    with pytest.raises(expected):
        restore(model)
    assert facts(model) == changed
    monkeypatch.undo()
    restore(model)
    assert facts(model)[1] == before[0][1]


@pytest.mark.parametrize(
    ("example", "message"),
    [(torch.randn(2, 5, 8, 8).double(), "the model raised on the example"), ((), "the model raised on the example")],
)
def test_an_example_that_does_not_run_is_an_error(example, message):
    model = build()
    before = facts(model)
    with pytest.raises(ConversionError, match=message):
        convert(model, flatten=example)
    assert facts(model) == before


def test_contiguous_and_lazy_models_are_refused():
    with pytest.raises(ConversionError, match="flatten= is for channels last"):
        convert(build(), "contiguous", flatten=BATCH)
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    with pytest.raises(ConversionError, match=r"1\.weight: it is not initialized yet"):
        convert(lazy, flatten=BATCH)
    assert isinstance(lazy[1], nn.LazyLinear)
