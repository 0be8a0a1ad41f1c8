"""Static recordings: nothing computed, the model untouched, and eager's formats where fake tensors promise others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from recorder.conftest import TRAIN, Small
from recorder.test_calls import calls, only
from torch import nn

from nhwc import rules
from nhwc.errors import ModelError, RecordingError
from nhwc.model import Trace
from nhwc.recorder import Options, record
from nhwc.recorder.static import DISAGREEMENTS, LIMITS, Correction, eager_strides, fake_mode

pytestmark = pytest.mark.usefixtures("few_threads")

STATIC = Options(static=True)
STATIC_TRAIN = Options(static=True, train=True)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
ATEN = torch.ops.aten


def last(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=FORMATS[len(shape)])


def test_the_calls_are_those_of_the_eager_run(small: Small) -> None:
    image = last(2, 3, 8, 8)
    small.to(memory_format=torch.channels_last)
    eager, static = record(small, image, options=TRAIN), record(small, image, options=STATIC_TRAIN)
    assert static.mode == "static"

    def essence(trace: Trace) -> list[tuple[object, ...]]:
        return [
            (call.operator, call.module, call.phase, [meta.strides for meta in call.outputs], call.source)
            for call in trace.calls
            if call.name not in ("detach", "empty", "empty_like", "_to_copy", "dropout", "native_dropout")
        ]

    kept = [call for call in essence(static) if call in essence(eager)]
    assert {call[0] for call in kept} >= {
        "aten.convolution.default",
        "aten.convolution_backward.default",
        "aten.relu.default",
        "aten.addmm.default",
    }
    assert [parameter.name for parameter in static.parameters] == [parameter.name for parameter in eager.parameters]
    assert all(parameter.gradient is not None for parameter in static.parameters)


def test_the_model_is_untouched(leaves_no_trace: Callable[..., None], small: Small, image: torch.Tensor) -> None:
    leaves_no_trace(small)
    trace = record(small, image, options=STATIC_TRAIN)
    assert calls(trace, "convolution")[0].inputs[1].name == "conv.weight"


def test_it_says_what_it_cannot_see_and_sees_no_more(small: Small, image: torch.Tensor) -> None:
    trace = record(nn.Sequential(nn.AvgPool3d(2)), last(2, 4, 6, 6, 6), options=STATIC)
    assert trace.limits == LIMITS
    assert all(call.ms is None and not call.copies and not call.reorders for call in trace.calls)
    assert only(trace, "avg_pool3d").caller == "aten::avg_pool3d"


def test_a_model_that_is_larger_than_memory() -> None:
    with fake_mode():
        model = nn.Sequential(nn.Conv2d(3, 2**20, 3), nn.ReLU(), nn.Conv2d(2**20, 2**20, 3))
        image = torch.empty(64, 3, 512, 512)
    trace = record(model, image, options=STATIC_TRAIN)
    assert [call.outputs[0].shape for call in calls(trace, "convolution")] == [
        (64, 2**20, 510, 510),
        (64, 2**20, 508, 508),
    ]
    assert calls(trace, "convolution_backward")[0].inputs[2].name == "2.weight"


def test_real_inputs_meet_a_fake_model() -> None:
    with fake_mode():
        model = nn.Linear(3, 2)
    assert only(record(model, torch.ones(1, 3), options=STATIC), "addmm").outputs[0].shape == (1, 2)


def test_a_training_step_needs_a_model() -> None:
    with pytest.raises(RecordingError, match=r"pass the nn\.Module"):
        record(lambda: None, options=STATIC)


def test_lazy_models_are_refused() -> None:
    with pytest.raises(RecordingError, match="'weight' is not initialised yet"):
        record(nn.LazyLinear(2), torch.ones(1, 2), options=STATIC)


class Uses(nn.Module):
    def __init__(self, step: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> object:
        return self.step(x)


def keep_best(x: torch.Tensor) -> torch.Tensor:
    torchvision = pytest.importorskip("torchvision")
    return torchvision.ops.nms(x, x[:, 0], 0.5)


DEPENDENT = {
    "unique": lambda x: x.unique(),
    "_local_scalar_dense": lambda x: x * x.sum().item(),
    "nonzero.default": lambda x: x[x > 0],
    "nms": keep_best,
}


@pytest.mark.filterwarnings("ignore:.*create_unbacked_symint:FutureWarning")
@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("keep_error", [False, True])
def test_numbers_that_fake_tensors_do_not_have(name: str, keep_error: bool) -> None:
    with pytest.raises(RecordingError, match=rf"{name}.*record it without static"):
        record(Uses(DEPENDENT[name]), torch.ones(2, 4), options=Options(static=True, keep_error=keep_error))


def test_a_model_that_is_wrong_is_wrong_in_static_too() -> None:
    with pytest.raises(ModelError, match="the step raised RuntimeError"):
        record(nn.Linear(3, 2), torch.ones(1, 4), options=STATIC)


SPREAD = {4: (2, 4, 3, 5), 5: (2, 4, 3, 3, 5)}
Call = tuple[Callable[..., object], tuple[object, ...]]


def shrunk(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[1] // 2, *shape[2:])


def padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], *(size + 2 for size in shape[2:]))


def norm(x: torch.Tensor) -> Call:
    return ATEN.native_group_norm, (x, None, None, 2, 4, x[0, 0].numel(), 2, 1e-5)


def norm_backward(x: torch.Tensor, gradient: torch.Tensor) -> Call:
    mean, scale = torch.randn(2, 2), torch.rand(2, 2)
    return ATEN.native_group_norm_backward, (
        gradient,
        x,
        mean,
        scale,
        None,
        2,
        4,
        x[0, 0].numel(),
        2,
        [True, False, False],
    )


def layer_norm_backward(x: torch.Tensor, gradient: torch.Tensor) -> Call:
    rows = (*x.shape[:-1], 1)
    ones = torch.ones(x.shape[-1])
    arguments = (gradient, x, [x.shape[-1]], torch.randn(rows), torch.rand(rows), ones, ones, [True, True, True])
    return ATEN.native_layer_norm_backward, arguments


#: Operator → (ranks, shape of the gradient or None for a forward operator, the call).
EXAMPLES: dict[str, tuple[tuple[int, ...], Callable[..., tuple[int, ...]] | None, Callable[..., Call]]] = {
    "native_group_norm": ((4, 5), None, norm),
    "native_group_norm_backward": ((4, 5), lambda shape: shape, norm_backward),
    "channel_shuffle": ((4,), None, lambda x: (ATEN.channel_shuffle, (x, 2))),
    "native_channel_shuffle": ((4,), None, lambda x: (ATEN.native_channel_shuffle, (x, 2))),
    "reflection_pad3d": ((5,), None, lambda x: (ATEN.reflection_pad3d, (x, [1] * 6))),
    "replication_pad3d": ((5,), None, lambda x: (ATEN.replication_pad3d, (x, [1] * 6))),
    "reflection_pad2d_backward": ((4,), padded, lambda x, g: (ATEN.reflection_pad2d_backward, (g, x, [1] * 4))),
    "replication_pad2d_backward": ((4,), padded, lambda x, g: (ATEN.replication_pad2d_backward, (g, x, [1] * 4))),
    "reflection_pad3d_backward": ((5,), padded, lambda x, g: (ATEN.reflection_pad3d_backward, (g, x, [1] * 6))),
    "replication_pad3d_backward": ((5,), padded, lambda x, g: (ATEN.replication_pad3d_backward, (g, x, [1] * 6))),
    "roll": ((4, 5), None, lambda x: (ATEN.roll, (x, [1, 2], [2, 3]))),
    "glu_backward": ((4, 5), shrunk, lambda x, g: (ATEN.glu_backward, (g, x, 1))),
    "_log_softmax_backward_data": (
        (4, 5),
        lambda shape: shape,
        lambda x, g: (ATEN._log_softmax_backward_data, (g, x, 1, torch.float32)),
    ),
    "native_layer_norm_backward": ((4, 5), lambda shape: shape, layer_norm_backward),
    "hardswish_backward": ((4, 5), lambda shape: shape, lambda x, g: (ATEN.hardswish_backward, (g, x))),
    "native_batch_norm_backward": (
        (4, 5),
        lambda shape: shape,
        lambda x, g: (
            ATEN.native_batch_norm_backward,
            (g, x, torch.ones(4), None, None, torch.zeros(4), torch.ones(4), True, 1e-5, [True, True, True]),
        ),
    ),
}


def test_every_disagreement_has_an_example() -> None:
    assert set(EXAMPLES) == set(DISAGREEMENTS)


def operands(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """Both formats, slices whose strides only suggest one, and operands in neither."""
    twice = (shape[0] * 2, *shape[1:])
    wide = (shape[0], shape[1] * 2, *shape[2:])
    expanded = torch.randn(*shape[:2], *[1] * (len(shape) - 2)).expand(shape)
    tokens = torch.randn(shape[0], shape[-1], *shape[1:-1]).movedim(1, -1)
    sliced = [last(*twice)[::2], last(*wide)[:, ::2], torch.randn(twice)[::2]]
    return [last(*shape), torch.randn(shape), *sliced, expanded, tokens]


CASES = [(name, rank) for name, (ranks, _, _) in EXAMPLES.items() for rank in ranks]


@pytest.mark.parametrize(("name", "rank"), CASES)
def test_a_disagreement_of_the_installed_torch_and_its_correction(name: str, rank: int) -> None:
    _, gradient_of, make = EXAMPLES[name]
    shape = SPREAD[rank]
    # the fake channel shuffle cannot view tokens, and raises
    pairs = [(x,) for x in operands(shape)[: -1 if name == "native_channel_shuffle" else None]]
    if gradient_of is not None:
        pairs = [(x, gradient) for x in operands(shape) for gradient in operands(gradient_of(shape))]
    disagreed = False
    for pair in pairs:
        packet, arguments = make(*pair)
        eager = first(packet.default(*arguments))
        mode, correct = fake_mode(), Correction()
        with mode:
            fakes = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments)
            promised = packet.default(*fakes)
            inputs = [value for value in fakes if isinstance(value, torch.Tensor)]
            corrected = first(correct(packet.default, inputs, promised))
        disagreed |= first(promised).stride() != eager.stride()
        assert corrected.stride() == eager.stride(), [value.stride() for value in inputs]
        assert bool(correct.limits()) == (first(promised).stride() != eager.stride())
    assert disagreed, f"{name} needs no entry for rank {rank}: fake tensors are right"


def first(result: object) -> torch.Tensor:
    tensor = result[0] if isinstance(result, tuple) else result
    assert isinstance(tensor, torch.Tensor)
    return tensor


def test_other_operators_and_devices_are_left_alone() -> None:
    image = last(2, 4, 3, 5)
    assert eager_strides(ATEN.relu.default, [image], image) is None
    with fake_mode():
        away = torch.empty(2, 4, 3, 5, device="cuda").to(memory_format=torch.channels_last)
        promised = away.contiguous()
        correct = Correction()
        assert correct(ATEN.native_group_norm.default, [away], (promised, None, None))[0] is promised
    assert correct.limits() == ["whether eager on cuda gives the formats that fake tensors promise is not checked"]


def group_normed() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ChannelShuffle(2))
    return model.to(memory_format=torch.channels_last)


def test_a_model_with_group_norm_raises_no_false_alarm() -> None:
    trace = record(group_normed(), last(2, 3, 8, 8), options=STATIC_TRAIN)
    assert {finding.code for finding in rules.find(trace)} <= {"NH205"}  # known to be slow, but no loss
    (limit,) = [limit for limit in trace.limits if "promise another format" in limit]
    assert "native_group_norm" in limit
    assert "channel_shuffle" in limit
    for call in calls(trace, "native_group_norm_backward"):
        assert call.outputs[0].strides == (288, 1, 48, 8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_operators_agree_but_those_of_the_table() -> None:
    """torch's own samples of every operator, forward and backward, with 4-D and 5-D operands in channels last."""
    pytest.importorskip("expecttest", reason="torch's test samples need expecttest")
    from recorder.disagreements import unexpected

    assert unexpected() == {}


@pytest.mark.slow
def test_a_large_network_at_a_large_batch_fits() -> None:
    import resource

    import torchvision

    model = torchvision.models.resnet152().to(memory_format=torch.channels_last)
    with fake_mode():
        image = torch.empty(256, 3, 224, 224, memory_format=torch.channels_last)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trace = record(model, image, options=STATIC_TRAIN)
    assert len(calls(trace, "convolution_backward")) == 155
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024 * 1024
