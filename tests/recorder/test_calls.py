"""Level one: what is noted of every operator call."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from recorder.conftest import TRAIN, Small
from torch import nn

from nhwc.errors import RecordingError
from nhwc.model import Call, Phase, Trace
from nhwc.recorder import Options, record

pytestmark = pytest.mark.usefixtures("few_threads")


def calls(trace: Trace, name: str) -> list[Call]:
    return [call for call in trace.calls if call.name == name]


def only(trace: Trace, name: str) -> Call:
    (call,) = calls(trace, name)
    return call


def test_overload_operands_and_arguments(small: Small, image: torch.Tensor) -> None:
    call = calls(record(small, image.to(memory_format=torch.channels_last)), "convolution")[0]
    assert call.operator == "aten.convolution.default"
    assert call.caller == "aten::conv2d"
    source, weight, bias = call.inputs
    assert (source.shape, source.strides, source.name) == ((2, 3, 8, 8), (192, 1, 24, 3), "input 0")
    assert (weight.shape, weight.name, weight.dtype, weight.device) == ((4, 3, 3, 3), "conv.weight", "float32", "cpu")
    assert bias.name == "conv.bias"
    assert call.outputs[0].strides == (256, 1, 32, 4)
    assert call.arguments[3:] == ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert (call.phase, call.module, call.module_type) == (Phase.FORWARD, "conv", "Conv2d")


def test_the_source_line_is_the_users_innermost() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(x) * 2  # the line

    source = only(record(lambda x: doubled(x), torch.ones(1)), "mul").source
    assert source is not None
    assert Path(source.file).name == "test_calls.py"
    assert source.text == "return nn.functional.relu(x) * 2  # the line"
    assert source.function.endswith("doubled")


def test_the_source_line_skips_the_standard_library() -> None:
    import functools

    source = calls(record(lambda x: functools.reduce(torch.add, [x, x]), torch.ones(1)), "add")[0].source
    assert source is not None
    assert Path(source.file).name == "test_calls.py"


def test_the_source_line_of_code_typed_at_a_prompt() -> None:
    scope = {"__name__": "__main__"}
    exec(compile("def step(x):\n    return x + 1\n", "<stdin>", "exec"), scope)
    exec(compile("def made(x):\n    return x + 1\n", "<generated>", "exec"), made := {"__name__": "library"})
    typed = only(record(scope["step"], torch.ones(1)), "add").source
    generated = only(record(lambda x: made["made"](x), torch.ones(1)), "add").source
    assert typed is not None
    assert (typed.file, typed.line) == ("<stdin>", 2)
    assert generated is not None
    assert Path(generated.file).name == "test_calls.py"


def test_views_share_memory_and_copies_do_not() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).reshape(2, 2)[0] + x.clone()

    trace = record(step, torch.ones(2, 2))
    transpose, clone, select = only(trace, "transpose"), calls(trace, "clone")[0], only(trace, "select")
    assert transpose.view
    assert select.view
    assert not clone.view
    assert transpose.outputs[0].storage == transpose.inputs[0].storage == trace.inputs[0].storage
    assert clone.outputs[0].storage != clone.inputs[0].storage


def test_in_place_calls_name_what_they_write() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)
        torch.mul(x, y, out=y)
        torch._foreach_add_([x, y], [y, x])

    trace = record(step, torch.ones(2), torch.ones(2))
    add, multiply, foreach = only(trace, "add_"), only(trace, "mul"), only(trace, "_foreach_add_")
    assert (add.mutates, add.view) == ((0,), False)
    assert [multiply.inputs[place].name for place in multiply.mutates] == ["input 1", "input 1"]
    assert foreach.mutates[:2] == (0, 1)


def test_identity_is_not_given_to_a_second_memory() -> None:
    def step(x: torch.Tensor) -> None:
        for _ in range(20):
            x = x + 1  # frees the one before: its address comes back

    trace = record(step, torch.ones(1000))
    storages = [call.outputs[0].storage for call in calls(trace, "add")]
    assert len(set(storages)) == 20


def test_backward_calls_come_from_their_forward(small: Small, image: torch.Tensor) -> None:
    trace = record(small, image, options=TRAIN)
    pairs = {
        "convolution_backward": "convolution",
        "native_batch_norm_backward": "native_batch_norm",
        "threshold_backward": "relu",
    }
    for backward, forward in pairs.items():
        found = calls(trace, backward)
        assert found
        for call in found:
            assert call.phase is Phase.BACKWARD
            assert call.forward is not None
            origin = trace.calls[call.forward]
            assert origin.name == forward
            assert (call.module, call.source) == (origin.module, origin.source)
    assert [call.module for call in calls(trace, "convolution_backward")] == ["block.0.0", "conv"]


def test_backward_of_an_in_place_operator_on_a_view() -> None:
    def step(x: torch.Tensor) -> None:
        y = x * 2
        view = y[:1]
        view.mul_(3)
        with torch.no_grad():
            y.detach().abs()  # makes no node: what the write left behind is not its own
        (y.sin().sum() + view.exp().sum()).backward()

    trace = record(step, torch.ones(2, requires_grad=True))
    written = only(trace, "mul_").index
    back = [call for call in trace.calls if call.forward == written]
    assert [call.name for call in back if call.name == "mul"] == ["mul"]
    assert {call.source for call in back} == {trace.calls[written].source}
    passive = {call.index for call in trace.calls if call.name in ("detach", "abs")}
    assert not passive & {call.forward for call in trace.calls}


def test_double_backward_comes_from_the_first_forward() -> None:
    conv = nn.Conv2d(2, 2, 1)

    def step(x: torch.Tensor) -> None:
        (gradient,) = torch.autograd.grad(conv(x).pow(3).sum(), conv.weight, create_graph=True)
        gradient.pow(2).sum().backward()

    trace = record(step, torch.randn(1, 2, 3, 3))
    first, *later = calls(trace, "convolution")
    assert len(later) == 2
    assert [(call.phase, call.forward) for call in later] == [(Phase.BACKWARD, first.index)] * 2
    assert all(call.caller == "aten::_convolution_double_backward" for call in later)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (3 * x).mul(x)


class Cubed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Cube.apply(x).exp()


def test_a_custom_function_forward_and_backward() -> None:
    trace = record(nn.Sequential(nn.Linear(2, 2), Cubed()), torch.ones(1, 2), options=TRAIN)
    forward = [call for call in calls(trace, "mul") if call.phase is Phase.FORWARD]
    assert [call.source.text for call in forward if call.source] == ["return x * x * x"] * 2
    backward = [
        call for call in trace.calls if call.phase is Phase.BACKWARD and call.source and "3 * x" in call.source.text
    ]
    assert len(backward) == 3
    assert {(call.module, call.forward) for call in backward} == {("1", forward[0].index)}


def test_hooks_of_the_user_in_the_backward_pass() -> None:
    def step(x: torch.Tensor) -> None:
        y = x.exp()
        y.register_hook(lambda gradient: gradient * 7)
        y.sum().backward()

    trace = record(step, torch.ones(2, requires_grad=True))
    hook = [call for call in calls(trace, "mul") if call.source and "* 7" in call.source.text]
    assert [call.phase for call in hook] == [Phase.BACKWARD]


def test_an_optimizer_inside_the_backward_pass() -> None:
    linear = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, foreach=False)
    linear.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    trace = record(lambda x: linear(x).sum().backward(), torch.ones(1, 2))
    assert {call.name for call in trace.calls if call.phase is Phase.OPTIMIZER} == {"add_"}


def test_a_closure_inside_an_optimizer_is_no_part_of_it() -> None:
    linear = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=1)

    def loss() -> torch.Tensor:
        value = nn.functional.mse_loss(linear(torch.ones(1, 2)), torch.zeros(1, 1))
        value.backward()
        return value

    trace = record(lambda: optimizer.step(loss))
    assert {call.phase for call in calls(trace, "mse_loss")} == {Phase.FORWARD}
    assert {call.phase for call in calls(trace, "mse_loss_backward")} == {Phase.BACKWARD}
    assert {call.phase for call in calls(trace, "addmm")} == {Phase.FORWARD}
    assert any(call.phase is Phase.OPTIMIZER for call in trace.calls)


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


STRANGE = {
    "sparse": lambda: sparse() @ torch.ones(3, 3),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 3),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]) * 2,
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged) * 2,
    "oneDNN": lambda: (torch.ones(1, 2, 3, 3).to_mkldnn() * 2).to_dense(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(1, 2, 3, 3), 0.1, 0, torch.qint8).dequantize() + 1,
    "quantized by channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8
    ).dequantize(),
    "complex": lambda: (torch.ones(2, 2, dtype=torch.complex64).conj() * 2j).imag.abs(),
    "empty": lambda: torch.empty(0, 3) + 1,
    "zero dimensions": lambda: torch.tensor(float("inf")) * 2,
    "meta": lambda: torch.ones(2, device="meta") * 2,
    "strings and devices": lambda: torch.ones(2).to(
        device="cpu", dtype=torch.float64, memory_format=torch.preserve_format
    ),
    "generators": lambda: torch.rand(2, generator=torch.Generator()),
    "sizes from data": lambda: torch.ones(3).nonzero()[:, 0].tolist()[int(torch.ones(1).item())],
    "script": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))(torch.ones(1, 2)),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.filterwarnings("ignore")
def test_strange_tensors_do_not_make_it_raise(name: str) -> None:
    assert record(STRANGE[name]).calls


def test_tensors_without_strides_have_no_shape() -> None:
    trace = record(lambda x: x @ torch.ones(3, 3), sparse())
    assert (trace.inputs[0].shape, trace.inputs[0].strides, trace.inputs[0].nbytes) == ((), (), 0)


class Wrapped(torch.Tensor):
    """A wrapper subclass: no memory of its own."""

    @staticmethod
    def __new__(cls, inside: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, inside.shape, strides=inside.stride(), dtype=inside.dtype)

    def __init__(self, inside: torch.Tensor) -> None:
        self.inside = inside

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        unwrap = torch.utils._pytree.tree_map_only(cls, lambda wrapped: wrapped.inside, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, func(*unwrap[0], **unwrap[1]))


def test_tensor_subclasses() -> None:
    trace = record(lambda x: x.add(1).mul_(2), Wrapped(torch.ones(2, 3)))
    assert [call.name for call in trace.calls] == ["add", "mul_"]
    assert trace.calls[0].outputs[0].strides == (3, 1)
    linear = nn.Linear(3, 3)
    linear.weight = nn.Parameter(Wrapped(linear.weight.detach()))
    assert record(linear, torch.ones(1, 3)).parameters[0].name == "weight"


def test_higher_order_operators_are_one_call() -> None:
    from torch._higher_order_ops.out_dtype import out_dtype

    trace = record(
        lambda x: out_dtype(torch.ops.aten.mm.default, torch.int32, x, x), torch.ones(2, 2, dtype=torch.int8)
    )
    (call,) = trace.calls
    assert (call.operator, call.caller, call.name) == ("out_dtype", "out_dtype", "out_dtype")
    assert [meta.name for meta in call.inputs] == ["input 0", "input 0"]


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_part_runs_in_eager_mode_and_the_trace_says_so() -> None:
    model = nn.Sequential(torch.compile(nn.Linear(2, 2), backend="eager"), nn.ReLU())
    trace = record(model, torch.ones(1, 2))
    assert only(trace, "addmm").module.startswith("0")
    assert "0 is compiled, but ran in eager mode while operators were recorded" in trace.limits


def test_a_part_that_must_compile_is_refused() -> None:
    must = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    with pytest.raises(RecordingError, match="fullgraph=True"):
        record(lambda x: must(x), torch.ones(1))


def test_a_thread_of_the_steps_own_is_told_of() -> None:
    linear, found = nn.Linear(2, 2), []

    def step(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: found.append(linear(x)))
        thread.start()
        thread.join()
        return found[0] + 1

    trace = record(step, torch.ones(1, 2))
    assert [call.name for call in trace.calls] == ["add"]
    assert "Linear '' ran in a thread that the step started: operators there are not recorded" in trace.limits


def test_a_very_deep_graph() -> None:
    def step(x: torch.Tensor) -> None:
        y = x
        for _ in range(3000):
            y = y + 1
        y.sum().backward()

    trace = record(step, torch.ones(1, requires_grad=True))
    assert len(calls(trace, "add")) == 3000


def test_a_very_deep_module() -> None:
    model = nn.Sequential(nn.ReLU())
    for _ in range(60):
        model = nn.Sequential(model)
    assert only(record(model, torch.ones(1)), "relu").module == ".".join(["0"] * 61)


def test_data_of_calls_that_can_be_replayed_is_json() -> None:
    import json

    trace = record(lambda x: x.clamp(min=float("-inf")).to(torch.float64).view(1, -1).sum(dim=[0]), torch.ones(2, 2))
    for call in trace.calls:
        json.dumps([call.arguments, call.keywords])
    assert only(trace, "clamp").arguments[1] == {"float": "-inf"}


def test_options_say_what_was_not_looked_for(small: Small, image: torch.Tensor) -> None:
    trace = record(small, image, options=Options(inner=False, libraries=False))
    assert trace.limits == (
        "reorders inside libraries were not looked for (libraries=False)",
        "copies inside kernels were not looked for (inner=False)",
    )
    assert all(call.caller == call.operator and not call.reorders for call in trace.calls)


def test_an_activation_that_saves_a_clone_of_what_it_overwrites_is_tied_to_itself() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(inplace=True), nn.Conv2d(8, 8, 3))
    trace = record(model, torch.randn(2, 3, 8, 8), options=TRAIN)
    (backward,) = [call for call in trace.calls if call.name == "silu_backward"]
    assert backward.forward is not None
    assert trace.calls[backward.forward].name == "silu_"
    assert backward.module == "1"
