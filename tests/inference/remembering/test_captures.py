"""A captured model written as JSON and read again gives the same graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torchvision
from inference.engines import assert_right, chooser, with_statistics
from torch import nn

from nhwc.errors import EngineError
from nhwc.inference import capture
from nhwc.inference.graph import Graph
from nhwc.inference.importing import imported
from nhwc.inference.module import Engine
from nhwc.inference.passes import simplify
from nhwc.inference.remembering.captures import read, written
from nhwc.inference.specialization import Specialization

X = torch.randn(2, 6, 8, 8, generator=torch.Generator().manual_seed(2))


class Of(nn.Module):
    """A module of one function and one convolution."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = nn.Conv2d(6, 6, 3, padding=1)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self.layer, *args, **kwargs)


def read_again(model: nn.Module, args: Any, kwargs: Any) -> tuple[capture.Captured, Graph]:
    captured = capture.captured(capture.export(model, args, kwargs))
    again = read(json.loads(json.dumps(written(captured))), model)
    graph = imported(again, again.root)
    assert graph is not None
    simplify(graph)
    return again, graph


def fast(model: nn.Module, *args: Any) -> Engine:
    made = Specialization(model, args, {}, chooser(), False, lambda *_: None, read_again)
    return Engine(model, [made])


def in_place(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = layer(x)
    y.add_(1).mul_(2)
    return F.relu(y, inplace=True)


def constant(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = layer(x) * torch.tensor([[[1.0]], [[float("inf")]], [[3.0]], [[0.0]], [[5.0]], [[6.0]]]).clamp(
        0, 9
    )
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda layer, x: {"a": layer(x), "b": [x, layer(x).mean((2, 3))], "c": 3, "d": None},
        lambda layer, x: torch.cat(layer(x).chunk(2, 1)[::-1], 1),
        lambda layer, x: layer(x).flatten(1).softmax(-1),
        lambda layer, x: F.interpolate(layer(x), scale_factor=2.0, mode="bilinear"),
        lambda layer, x: layer(x).to(torch.float64).sum(),
        lambda layer, x: F.scaled_dot_product_attention(*layer(x).flatten(2).transpose(1, 2).chunk(3, -1)),
        in_place,
        constant,
    ],
)
def test_a_model_that_was_read_again_is_right(function: Callable[..., Any]) -> None:
    model = Of(function).eval()
    assert_right(model, X, engine=fast(model, X))


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5", "mobilenet_v3_small"])
def test_a_network_becomes_the_same_graph(name: str) -> None:
    model = with_statistics(torchvision.models.get_model(name, weights=None))
    captured = capture.captured(capture.export(model, (X[:, :3],), {}))
    again = read(json.loads(json.dumps(written(captured))), model)
    graphs = [imported(each, each.root) for each in (captured, again)]
    one, other = (
        [(type(each.work), each.output.name, each.output.shape, each.path, each.source) for each in graph.nodes]
        for graph in graphs
        if graph is not None
    )
    assert one == other
    assert {"layer1.0.conv1", "conv1.0", "features.0.0"} & {path for *_, path, _ in one}


def test_weights_come_from_the_model_that_is_given() -> None:
    model, other = Of(lambda layer, x: layer(x)).eval(), Of(lambda layer, x: layer(x)).eval()
    document = written(capture.captured(capture.export(model, (X,), {})))
    held = read(document, other).constants
    assert any(torch.equal(each, other.layer.weight) for each in held.values())
    assert not any(each is other.layer.weight for each in held.values())


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x[x > 0],  # a size that only a run can tell
        lambda _, x: x + torch.tensor(list(range(70_000)))[:8],
        lambda _, x: torchvision.ops.nms(x[0, :2, :4, 0].T.repeat(1, 2), x[0, 0, 0, :4], 0.5),
    ],
)
def test_what_is_no_data_is_refused(function: Callable[..., Any]) -> None:
    captured = capture.captured(capture.export(Of(function).eval(), (X,), {}))
    with pytest.raises(EngineError):
        written(captured)
