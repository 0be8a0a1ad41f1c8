"""convert(flatten=...): the Linear behind a flattened image computes the same, nothing is copied, restore undoes it."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from nhwc.conversion import convert, restore
from nhwc.conversion.image_linear import Flow, ImageLinear
from nhwc.errors import ConversionError
from nhwc.strides import strides_for


class Net(nn.Module):
    """As VGG flattens: behind a pooling module, before a Sequential of Dropout, Linear and ReLU."""

    def __init__(self, dropout=0.5):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.avgpool = nn.AdaptiveAvgPool2d((3, 4))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(8 * 12, 6), nn.ReLU(inplace=True), nn.Linear(6, 5)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Functional(nn.Module):
    """As the README's model, and PyTorch's first tutorial: one module called twice, functions, and a view."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 10, 3)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(10 * 6, 4)

    def forward(self, x):
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        return self.fc(functional.dropout(functional.leaky_relu(x), training=self.training).view(-1, 10 * 6))


class Volume(nn.Module):
    """Two Linear layers behind one flatten. The convolution of float64 volumes would answer in contiguous."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm3d(5)
        self.flat = nn.Flatten()
        self.heads = nn.ModuleList([nn.Linear(5 * 2 * 3 * 4, 3), nn.Linear(5 * 2 * 3 * 4, 2, bias=False)])

    def forward(self, x):
        y = self.flat(self.norm(x).relu())
        return self.heads[0](y), self.heads[1](torch.tanh(y))


def sequential():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 7, 5))


MODELS = {"net": Net, "functional": Functional, "volume": Volume, "sequential": sequential}
SHAPES = {"net": (2, 3, 9, 8), "functional": (2, 3, 14, 18), "volume": (2, 5, 2, 3, 4), "sequential": (2, 3, 8, 9)}


def build(name):
    torch.manual_seed(0)
    return MODELS[name]().double()


def batch(name, number=2):
    return torch.randn(number, *SHAPES[name][1:], dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def tensors(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


class Copies(TorchDispatchMode):
    """Counts the copies of whole activations."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("clone", "copy_", "_to_copy", "_reshape_copy"):
            self.found.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def last(x):
    return x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def changed(model):
    return [path for path, module in model.named_modules() if isinstance(module, ImageLinear)]


def snapshot(model):
    """All that restore must bring back."""
    return (
        {name: (id(t), t.stride(), tuple(t.shape)) for name, t in model.state_dict(keep_vars=True).items()},
        [
            (
                type(m),
                dict(m._forward_pre_hooks),
                dict(m._forward_hooks),
                dict(m._forward_hooks_always_called),
                set(vars(m)),
            )
            for m in model.modules()
        ],
        [m.training for m in model.modules()],
    )


def same(got, want, **tolerance):
    for a, b in zip(tensors(got), tensors(want), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_before(name, train):
    model, x = build(name).train(train), last(batch(name)).requires_grad_()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if train and name == "functional":
        model.eval()  # a functional dropout cannot be switched off in training mode
    reference, plain = copy.deepcopy(model), batch(name).requires_grad_()
    convert(model, flatten=batch(name))
    assert changed(model)
    got, want = model(x), reference(plain)
    same(got, want)
    sum(each.square().sum() for each in tensors(got)).backward()
    sum(each.square().sum() for each in tensors(want)).backward()
    same(x.grad, plain.grad)
    for (path, have), wanted in zip(model.named_parameters(), reference.parameters(), strict=True):
        same(have.grad.reshape(wanted.shape), wanted.grad)
        assert have.grad.stride() == have.stride(), path
    assert x.grad.stride() == strides_for(x.shape, "channels_last" if x.dim() == 4 else "channels_last_3d")


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_copied_forward_or_backward(name):
    model, x = build(name).float(), last(batch(name).float()).requires_grad_()
    convert(model, flatten=batch(name).float())
    with Copies() as copies:
        output = model(x)
        torch.autograd.grad(tensors(output), [x, *model.parameters()], [torch.ones_like(t) for t in tensors(output)])
    assert copies.found == []


@pytest.mark.parametrize("name", MODELS)
def test_other_inputs_than_the_example_are_right_too(name):
    model, reference = build(name).eval(), build(name).eval()
    convert(model, flatten=batch(name))
    for x in (batch(name), last(batch(name, 5)), batch(name, 1), last(batch(name, 3))[1:], batch(name, 0)):
        same(model(x), reference(x.contiguous()))


def test_another_size_of_the_image_is_right_where_the_model_allows_it():
    model, reference = build("net").eval(), build("net").eval()
    convert(model, flatten=batch("net"))
    model.avgpool.output_size = reference.avgpool.output_size = (6, 2)
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    same(model(x), reference(x))
    model.avgpool.output_size = (2, 2)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(x)


def test_parts_called_by_themselves_compute_what_they_did():
    model, reference = build("net").eval(), build("net").eval()
    convert(model, flatten=batch("net"))
    x = batch("net")
    image = model.avgpool(model.features(x))
    assert image.shape == (2, 8, 3, 4)
    same(model.classifier(image.flatten(1)), reference(x))
    with pytest.raises(ZeroDivisionError):
        model(Raises(x))
    same(model.classifier(image.flatten(1)), reference(x))


class Raises:
    """Passes nowhere: a call that fails in the middle."""

    def __init__(self, x):
        self.x = x

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise ZeroDivisionError


def test_restore_undoes_it_exactly():
    model = build("net").train()
    model.features.eval()
    model(batch("net")).sum().backward()
    before, values = snapshot(model), {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    convert(model, flatten=batch("net"), inputs=True)
    assert changed(model) == ["classifier.1"]
    assert model.classifier[1].weight.stride() == (96, 1, 32, 8)
    assert model.classifier[1].weight.grad.stride() == (96, 1, 32, 8)
    restore(model)
    assert snapshot(model) == before
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, values[name])
        assert torch.equal(parameter.grad, gradients[name])
        assert parameter.grad.stride() == parameter.stride()


def test_buffers_random_state_and_the_example_are_left_as_they_are():
    model, x = build("net").train(), batch("net")
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    random, example = torch.get_rng_state(), x.clone()
    convert(model, flatten=x)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, example)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name])


def test_a_graph_of_before_that_still_lives_does_no_harm():
    model, x = build("net").eval(), batch("net")
    loss = model(x).sum()
    convert(model, flatten=x)
    model(x).sum().backward()
    restore(model)
    model.zero_grad()
    model(x).sum().backward()
    assert loss.grad_fn is not None
    assert model.classifier[1].weight.grad.shape == (6, 96)


def test_it_comes_after_another_conversion_with_doors_as_well():
    model, reference = convert(build("net").eval(), inputs=True), build("net").eval()
    convert(model, flatten=batch("net"))
    assert changed(model) == ["classifier.1"]
    same(model(batch("net")), reference(batch("net")))


def test_another_call_changes_nothing_more():
    model = convert(build("net"), flatten=batch("net"))
    before = snapshot(model)
    convert(model, flatten=batch("net"))
    convert(model)
    assert snapshot(model)[1:] == before[1:]
    assert snapshot(restore(model))[1:] == snapshot(build("net"))[1:]


def test_a_linear_that_is_replaced_gets_the_usual_order():
    model, reference = convert(build("net").eval(), flatten=batch("net")), build("net").eval()
    model.classifier[1] = copy.deepcopy(reference.classifier[1])
    same(model(last(batch("net"))), reference(batch("net")))
    convert(model, flatten=batch("net"))
    same(model(last(batch("net"))), reference(batch("net")))
    assert changed(model) == ["classifier.1"]
    same(restore(model)(batch("net")), reference(batch("net")))


def test_a_module_in_front_that_is_replaced_turns_nothing():
    model, reference = convert(build("net").eval(), flatten=batch("net")), build("net").eval()
    model.avgpool = nn.AdaptiveAvgPool2d((3, 4))
    same(model(last(batch("net"))), reference(batch("net")))


def test_restoring_a_part_leaves_alone_what_gets_its_images_from_outside():
    model, reference = convert(build("net").eval(), flatten=batch("net")), build("net").eval()
    convert(model.classifier)
    restore(model.classifier)
    assert changed(model) == ["classifier.1"]
    same(model(last(batch("net"))), reference(batch("net")))
    same(restore(model)(batch("net")), reference(batch("net")))
    assert changed(model) == []


def save_and_load(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("step", [copy.deepcopy, save_and_load])
def test_copies_and_files_keep_it_and_are_restored(step):
    model, x = build("net").eval(), batch("net")
    want = model(x)
    model = step(convert(model, flatten=x))
    assert changed(model) == ["classifier.1"]
    x = last(x)
    with Copies() as copies:
        same(model(x), want)
    assert copies.found == []
    flows = {id(hook.flow) for m in model.modules() for hook in m._forward_pre_hooks.values() if hasattr(hook, "flow")}
    assert flows == {id(model.classifier[1].flow)}
    same(restore(model)(x), want)
    assert changed(model) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_casting_keeps_it(dtype):
    model, x = convert(build("net").eval(), flatten=batch("net")).to(dtype), batch("net").to(dtype)
    assert model.classifier[1].weight.stride() == (96, 1, 32, 8)
    want = build("net").eval()(x.double())
    same(model(x).double(), want, rtol=0.1, atol=0.05)
    model.to(memory_format=torch.contiguous_format)
    assert model.classifier[1].weight.is_contiguous()
    same(model(x).double(), want, rtol=0.1, atol=0.05)


def test_each_thread_has_a_flow_of_its_own():
    flow = Flow((3, 2, 2))
    flow.inside = True
    seen = []

    def other():
        seen.append((flow.inside, flow.shape, flow.turn(torch.zeros(1, 3, 2, 2)).shape))

    from threading import Thread

    thread = Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [(False, (3, 2, 2), (1, 3, 2, 2))]
    assert flow.turn(torch.zeros(1, 3, 2, 2)).shape == (1, 12, 1, 1)


# -- models that may not be changed -----------------------------------------------------------------------------------


class Head(nn.Module):
    """A convolution, a pooling module, and ``end`` to flatten in its way."""

    def __init__(self, end, **layers):
        super().__init__()
        self.kept = None
        self.conv, self.pool, self.fc = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d((2, 3)), nn.Linear(48, 5)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.end = end

    def forward(self, x):
        return self.end(self, self.pool(self.conv(x)))


def attribute(m, x):
    m.kept = x.flatten(1)
    return m.fc(m.kept)


REFUSED = {
    "batch norm between": (
        lambda: Head(lambda m, x: m.fc(m.norm(x.flatten(1))), norm=nn.BatchNorm1d(48)),
        "native_batch_norm",
    ),
    "layer norm between": (
        lambda: Head(lambda m, x: m.fc(m.norm(x.flatten(1))), norm=nn.LayerNorm(48)),
        "native_layer_norm",
    ),
    "gate of its own": (
        lambda: Head(lambda m, x: m.fc(x.flatten(1) * m.gate), gate=nn.Parameter(torch.randn(48))),
        "mul",
    ),
    "channels kept apart": (lambda: Head(lambda m, x: m.fc(x.view(x.size(0), 8, -1).flip(1).flatten(1))), ""),
    "a pooled branch": (lambda: Head(lambda m, x: m.fc(x.flatten(1)) + x.mean((2, 3)).sum()), "mean"),
    "a norm of it": (lambda: Head(lambda m, x: m.fc(x.flatten(1)) / x.flatten(1).norm()), "norm"),
    "dropout of channels": (lambda: Head(lambda m, x: m.fc(functional.dropout2d(x, training=True).flatten(1))), ""),
    "returned": (lambda: Head(lambda m, x: (m.fc(x.flatten(1)), x.flatten(1))), "handed out"),
    "returned as an image": (lambda: Head(lambda m, x: {"y": m.fc(x.flatten(1)), "x": x}), "handed out"),
    "kept": (lambda: Head(attribute), "is kept"),
    "joined": (lambda: Head(lambda m, x: m.fc2(torch.cat([x.flatten(1), x.flatten(1)], 1)), fc2=nn.Linear(96, 5)), ""),
    "a Linear called twice": (
        lambda: Head(lambda m, x: m.fc(x.flatten(1)) + m.fc(torch.ones(2, 48, dtype=x.dtype))),
        "other tensors",
    ),
    "its weight used": (lambda: Head(lambda m, x: m.fc(x.flatten(1)) + m.fc.weight.square().sum()), "uses pow"),
    "shape asked for": (lambda: Head(lambda m, x: m.fc(x.flatten(1)) * x.shape[2]), "other steps"),
    "at random": (lambda: Head(lambda m, x: m.fc(functional.dropout(x.flatten(1), training=True))), "differ"),
    "no module in front": (lambda: Head(lambda m, x: m.fc(functional.avg_pool2d(x, 1).flatten(1))), "put nn.Flatten"),
    "contiguous": (lambda: Head(lambda m, x: m.fc(m.copy(x.contiguous()).flatten(1)), copy=nn.Identity()), "free"),
    "tied": (lambda: tied(), "another layer"),
    "a subclass": (lambda: Head(lambda m, x: m.other(x.flatten(1)), other=Subclass(48, 5)), "plain nn.Linear"),
}


class Subclass(nn.Linear):
    pass


def tied():
    model = Head(lambda m, x: m.fc(x.flatten(1)), other=nn.Linear(48, 5))
    model.other.weight = model.fc.weight
    return model


@pytest.mark.parametrize("case", REFUSED)
def test_what_minds_the_order_is_refused_and_left_as_it_was(case):
    make, reason = REFUSED[case]
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(2, 3, 6, 7, dtype=torch.float64)
    before = snapshot(model)
    with pytest.raises(ConversionError, match=f"flatten=: no Linear can be changed: .*{reason}"):
        convert(model, flatten=x, inputs=True)
    assert snapshot(model) == before


def test_what_only_training_forbids_copies_in_training_alone():
    def end(m, x):
        y = x.flatten(1)
        return m.fc(y) + (y.mean() if m.training else 0)

    model, x = Head(end).double(), torch.randn(2, 3, 6, 7, dtype=torch.float64)
    reference = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="pool: in training mode it copies as before, since there its image .* mean"):
        convert(model, flatten=x)
    channels_last = last(x)
    for train in (True, False):
        with Copies() as copies:
            got = model.train(train)(channels_last)
        same(got, reference.train(train)(x))
        assert (copies.found == []) is not train


def test_one_of_two_is_changed_and_the_other_is_named():
    def end(m, x):
        y = m.two(x.abs())
        return m.fc(m.one(x)) + m.other(y) + y.mean()

    layers = {"other": nn.Linear(48, 5), "one": nn.Flatten(), "two": nn.Flatten()}
    model, x = Head(end, **layers).double(), torch.randn(2, 3, 6, 7, dtype=torch.float64)
    reference = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="flatten=: two: its image also goes into mean, which minds its order"):
        convert(model, flatten=(x,))
    assert changed(model) == ["fc"]
    same(model(x), reference(x))
