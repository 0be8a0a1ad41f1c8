"""Real models: converted, run, restored exactly."""

import copy
import gc

import pytest
import torch
from torch import nn

from nhwc.api import audit
from nhwc.conversion import convert, restore
from nhwc.strides import channels_last_for, strides_for

models = pytest.importorskip("torchvision.models")

QUICK = ["resnet18", "r3d_18", "shufflenet_v2_x0_5"]
SLOW = [
    "raft_small", "fasterrcnn_resnet50_fpn", "swin_t", "convnext_tiny", "vit_b_16", "googlenet", "densenet121",
    "mobilenet_v3_small", "deeplabv3_resnet50", "efficientnet_b0", "swin3d_t",
]  # fmt: skip


def build(name):
    torch.manual_seed(0)
    options = {"init_weights": False} if name == "googlenet" else {}
    if name.startswith(("fasterrcnn", "deeplab")):
        options["weights_backbone"] = None
    return models.get_model(name, weights=None, **options).eval()


def arguments(name):
    torch.manual_seed(1)
    if name == "raft_small":
        return torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)
    if name.startswith("fasterrcnn"):
        return ([torch.rand(3, 96, 128), torch.rand(3, 96, 96)],)
    if name in ("r3d_18", "swin3d_t"):
        return (torch.rand(1, 3, 8, 32, 32),)
    return (torch.rand(1, 3, 224, 224) if name == "vit_b_16" else torch.rand(1, 3, 64, 64),)


def facts(model):
    return {name: (id(t), tuple(t.shape), t.stride(), t.dtype) for name, t in model.state_dict(keep_vars=True).items()}


def check(name):
    model, args = build(name), arguments(name)
    before, values = facts(model), {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(*args)
        convert(model, inputs=True)
        got = model(*args)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d | nn.Conv3d)]
    assert weights
    for weight in weights:
        assert weight.stride() == strides_for(weight.shape, channels_last_for(weight.dim()))
    restore(model)
    assert facts(model) == before
    for key, value in model.state_dict().items():
        assert torch.equal(value, values[key]), key
    gc.collect()


@pytest.mark.parametrize("name", QUICK)
def test_converts_and_restores(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_converts_and_restores_more(name):
    check(name)


@pytest.mark.parametrize(
    ("name", "size", "linear"), [("alexnet", 96, 1), pytest.param("vgg11_bn", 48, 0, marks=pytest.mark.slow)]
)
def test_the_flatten_of_a_classifier_copies_nothing_and_learns_the_same(name, size, linear):
    torch.manual_seed(0)
    model = models.get_model(name, weights=None).eval()
    x = torch.rand(2, 3, size, size)
    reference = copy.deepcopy(model).double()
    wanted = reference(x.double())
    wanted.square().mean().backward()
    convert(model, inputs=True, flatten=x)
    weight = model.classifier[linear].weight
    assert weight.stride() == strides_for(weight.shape, "channels_last")
    report = audit(model, x, convert=False, repeats=0)
    assert "flatten" not in [finding.operator for finding in report.findings]
    got = model(x)
    got.square().mean().backward()
    assert relative(got, wanted) < 1e-5
    for (path, have), want in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert relative(have.grad.reshape(want.shape), want.grad) < 1e-3, path
        assert have.grad.stride() == have.stride(), path
    restore(model)
    assert type(model.classifier[linear]) is nn.Linear
    assert relative(model(x), wanted) < 1e-5


def relative(got, want):
    return ((got - want).norm() / want.norm()).item()
