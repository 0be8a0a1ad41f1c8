"""A recording leaves model, optimizer and global state as they were, also when the step ends early."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import numpy as np
import pytest
import torch
from recorder.conftest import TRAIN, Small
from torch import nn

from nhwc.errors import ModelError
from nhwc.recorder import Options, record

Watch = Callable[..., None]


def tensors_of(value: object) -> object:
    """An optimizer's state with tensors as their identity and bytes."""
    if isinstance(value, torch.Tensor):
        return id(value), value.detach().clone().numpy().tobytes()
    if isinstance(value, dict):
        return [(id(key) if isinstance(key, torch.Tensor) else key, tensors_of(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [tensors_of(item) for item in value]
    return value


def state_of(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    return lambda: (tensors_of(optimizer.state), tensors_of(optimizer.param_groups))


@pytest.mark.parametrize(
    "options", [Options(), TRAIN, Options(amp=torch.bfloat16), Options(train=True, amp=torch.bfloat16)]
)
def test_a_model(leaves_no_trace: Watch, small: Small, image: torch.Tensor, options: Options) -> None:
    leaves_no_trace(small, also=lambda: image.numpy().tobytes())
    trace = record(small, image, options=options)
    assert any(call.name == "convolution" for call in trace.calls)


def test_mixed_training_flags_and_frozen_parameters(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    small.norm.eval()
    small.conv.weight.requires_grad_(False)
    leaves_no_trace(small)
    record(small, image, options=TRAIN)
    assert not small.norm.training
    assert small.block.training


def test_gradients_that_exist_keep_identity_and_values(
    leaves_no_trace: Watch, small: Small, image: torch.Tensor
) -> None:
    small(image).sum().backward()
    small.head.bias.grad = None
    leaves_no_trace(small)
    record(small, image, options=TRAIN)
    assert small.head.bias.grad is None
    assert small.conv.weight.grad is not None


def test_gradients_that_a_callable_adds_to(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    small(image).sum().backward()
    leaves_no_trace(small)
    record(lambda: small(image).sum().backward())


def test_buffers_that_the_step_replaces_or_adds(leaves_no_trace: Watch) -> None:
    class Replaces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean + 1
            self.register_buffer("seen", x)
            self.weight = nn.Parameter(torch.ones(2))
            return x

    model = Replaces()
    leaves_no_trace(model)
    record(model, torch.ones(2))
    assert list(model._buffers) == ["mean"]


def test_a_buffer_that_the_step_resizes(leaves_no_trace: Watch) -> None:
    class Resizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("queue", torch.arange(3.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.queue.untyped_storage().resize_(0)
            return x

    model = Resizes()
    leaves_no_trace(model)
    record(model, torch.ones(2))


def test_running_statistics_without_a_module(leaves_no_trace: Watch, image: torch.Tensor) -> None:
    mean, variance = torch.zeros(3), torch.ones(3)
    leaves_no_trace(also=lambda: (mean.tolist(), variance.tolist()))
    record(lambda: nn.functional.batch_norm(image, mean, variance, training=True))


def test_memory_that_operators_write(leaves_no_trace: Watch) -> None:
    image, average, weight = torch.ones(2, 3), torch.zeros(3), torch.ones(3, requires_grad=True)

    def step(x: torch.Tensor) -> None:
        x.mul_(2)
        average.lerp_(weight.detach(), 0.5)
        (x * weight).sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
            weight.data[:1] = 7

    leaves_no_trace(also=lambda: (image.tolist(), average.tolist(), weight.tolist(), weight.grad))
    trace = record(step, image)
    assert [call.name for call in trace.calls if call.mutates][:2] == ["mul_", "lerp_"]


def test_a_graph_from_before_can_still_run_backward(few_threads: None, small: Small, image: torch.Tensor) -> None:
    """Putting values back must not count as a change of the tensors that the graph has saved."""
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
    loss = small(image).sum() + small.eval()(image).sum()
    small.train()

    def step() -> None:
        small(image).sum().backward()
        optimizer.step()

    record(step)
    record(small, image, options=TRAIN)
    loss.backward()
    assert small.conv.weight.grad is not None


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "adam amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.1), amsgrad=True, foreach=False),
    "fused adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=2),
}


@pytest.mark.parametrize("warm", [False, True], ids=["first step", "later step"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step(leaves_no_trace: Watch, small: Small, image: torch.Tensor, name: str, warm: bool) -> None:
    optimizer = OPTIMIZERS[name](list(small.parameters()))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = small(image).square().sum()
        value.backward()
        return value

    def step() -> None:
        optimizer.step(loss)

    if warm:
        step()
    leaves_no_trace(small, also=state_of(optimizer))
    trace = record(step)
    assert {call.phase.value for call in trace.calls} == {"forward", "backward", "optimizer"}


def test_a_trainer_with_scaler_and_schedule(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.parts = {"model": small}
            self.optimizer = torch.optim.SGD(small.parameters(), lr=0.1, momentum=0.9)
            self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
            self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)

        def __call__(self, x: torch.Tensor) -> None:
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.parts["model"](x).sum()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()

    trainer = Trainer()
    trainer(image)
    leaves_no_trace(
        small,
        also=lambda: (state_of(trainer.optimizer)(), trainer.scaler.state_dict(), trainer.schedule.state_dict()),
    )
    record(trainer, image)
    record(trainer.__call__, image)


def test_an_optimizer_that_the_callable_hides(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    hidden = iter([torch.optim.Adam(small.parameters(), lr=0.1)])
    optimizers: list[torch.optim.Optimizer] = []

    def step() -> None:
        small(image).sum().backward()
        optimizers.extend(hidden)
        optimizers[0].step()

    leaves_no_trace(small)
    record(step)
    assert not optimizers[0].state


def test_random_numbers_of_every_kind(leaves_no_trace: Watch) -> None:
    generator, hidden = torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)
    box = iter([hidden])

    def step() -> None:
        torch.rand(2)
        torch.rand(2, generator=generator)
        torch.rand(2, generator=next(box))
        random.random()
        np.random.rand(2)

    leaves_no_trace(also=lambda: (generator.get_state().tolist(), hidden.get_state().tolist()))
    record(step)


class Raises(nn.Module):
    """Raises ``error`` at a place: forward, backward, a hook."""

    def __init__(self, place: str, error: Callable[[], None]) -> None:
        super().__init__()
        self.inner = Small()
        if place == "hook":
            self.inner.head.register_forward_hook(lambda *_: error())
        self.place, self.error = place, error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.place == "forward":
            self.error()
        if self.place == "backward":
            x.register_hook(lambda _: self.error())
        return x


class StepError(Exception):
    """Stands for an error of the user's model."""


def fail() -> None:
    raise StepError("no")


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["forward", "backward", "hook"])
@pytest.mark.parametrize("error", [fail, interrupt, press_ctrl_c])
def test_a_step_that_ends_early(
    leaves_no_trace: Watch, image: torch.Tensor, place: str, error: Callable[[], None]
) -> None:
    model = Raises(place, error)
    leaves_no_trace(model)
    with pytest.raises(ModelError if error is fail else KeyboardInterrupt):
        record(model, image, options=TRAIN)
    if error is fail:
        trace = record(model, image, options=Options(train=True, keep_error=True))
        assert trace.error is not None
        assert trace.error.type == "StepError"


def test_an_operator_that_raises_is_named(leaves_no_trace: Watch, small: Small) -> None:
    leaves_no_trace(small)
    trace = record(small, torch.ones(1, 5, 8, 8), options=Options(keep_error=True))
    assert trace.error is not None
    assert trace.error.call is not None
    assert trace.calls[trace.error.call].name == "convolution"


def test_a_training_step_that_ends_in_its_optimizer(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(small.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        small(image).sum().backward()
        optimizer.step()
        raise StepError

    leaves_no_trace(small, also=state_of(optimizer))
    with pytest.raises(ModelError):
        record(step)


def test_fifty_recordings_open_no_files(leaves_no_trace: Watch) -> None:
    model = nn.Conv2d(1, 1, 1)
    leaves_no_trace(model)  # compares open descriptors and temporary files at the end
    for _ in range(50):
        record(model, torch.ones(1, 1, 1, 1))


def test_a_profiler_of_the_users_stays_on(few_threads: None, small: Small, image: torch.Tensor) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        trace = record(small, image)
        assert torch._C._autograd._profiler_enabled()
        small(image)
    assert any("another profiler is running" in limit for limit in trace.limits)
    assert any(event.key == "aten::conv2d" for event in profile.key_averages())


def test_hooks_of_the_users_run_and_stay(leaves_no_trace: Watch, small: Small, image: torch.Tensor) -> None:
    seen: list[str] = []
    small.conv.register_forward_pre_hook(lambda *_: seen.append("before"))
    small.conv.register_forward_hook(lambda *_: seen.append("after"))
    small.conv.register_full_backward_hook(lambda *_: seen.append("backward"))
    leaves_no_trace(small)
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    record(small, image.clone().requires_grad_(), options=TRAIN)
    handle.remove()
    assert seen[:2] == ["before", "Conv2d"]
    assert "after" in seen
    assert "backward" in seen
