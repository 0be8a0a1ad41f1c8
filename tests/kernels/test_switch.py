"""Kernels are on inside their blocks and nowhere else, whoever enters and however a block is left."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernels import children
from torch import nn

import nhwc


@pytest.fixture(autouse=True)
def all_off() -> Iterator[None]:
    assert nhwc.kernels.active() == ()
    yield
    nhwc.kernels.disable()
    assert nhwc.kernels.active() == ()


def image() -> torch.Tensor:
    return torch.randn(2, 6, 8, 8).to(memory_format=torch.channels_last)


def softmax_keeps() -> bool:
    """Whether the softmax kernel serves a call: torch's own answers contiguous."""
    return image().softmax(1).is_contiguous(memory_format=torch.channels_last)


def test_the_original_is_back_after_the_block() -> None:
    assert not softmax_keeps()
    with nhwc.kernels.use("softmax"):
        assert softmax_keeps()
        assert nhwc.kernels.active() == ("softmax",)
    assert not softmax_keeps()


def test_an_exception_puts_the_original_back() -> None:
    with pytest.raises(KeyError), nhwc.kernels.use():
        raise KeyError
    assert not softmax_keeps()


def test_nested_blocks_add_up() -> None:
    with nhwc.kernels.use("softmax"):
        with nhwc.kernels.use("softmax", "cat"):
            assert nhwc.kernels.active() == ("cat", "softmax")
        assert softmax_keeps()
        with nhwc.kernels.use():
            pass
        assert nhwc.kernels.active() == ("softmax",)


def test_enable_lasts_until_disable_and_blocks_do_not_end_it() -> None:
    nhwc.kernels.enable("softmax")
    with nhwc.kernels.use("softmax"):
        pass
    assert softmax_keeps()
    nhwc.kernels.disable("softmax")
    assert not softmax_keeps()


def test_disable_leaves_open_blocks_theirs() -> None:
    nhwc.kernels.enable()
    with nhwc.kernels.use("softmax"):
        nhwc.kernels.disable()
        assert nhwc.kernels.active() == ("softmax",)


def test_a_kernel_brings_those_it_uses() -> None:
    with nhwc.kernels.use("instance_norm"):
        assert nhwc.kernels.active() == ("group_norm", "instance_norm")


def test_one_thread_does_not_take_away_what_another_uses() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with nhwc.kernels.use("softmax"):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(30)
    with nhwc.kernels.use("softmax"):
        pass
    assert softmax_keeps()
    leave.set()
    thread.join()
    assert not softmax_keeps()


def test_many_threads_switch_and_call_at_once() -> None:
    failures: list[str] = []
    x = torch.randn(1, 6, 4, 4)
    expected = x.softmax(1)

    def work() -> None:
        for _ in range(50):
            with nhwc.kernels.use("softmax"):
                found = x.to(memory_format=torch.channels_last).softmax(1)
            if not torch.allclose(found, expected):
                failures.append("wrong values")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_kernel_outlives_its_block_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may have found it in the table just before it went; later it is freed."""
    from nhwc.kernels import dispatcher

    made: list[weakref.ref[object]] = []
    standing_in = dispatcher._standing_in

    def watched(*arguments: Any) -> Any:
        replacement = standing_in(*arguments)
        made.append(weakref.ref(replacement))
        return replacement

    monkeypatch.setattr(dispatcher, "_standing_in", watched)
    with nhwc.kernels.use("softmax"):
        pass
    first = list(made)
    assert first
    assert all(each() is not None for each in first)
    monkeypatch.setattr(dispatcher, "_RETIRED_FOR_S", -1.0)
    with nhwc.kernels.use("softmax"):
        pass
    assert all(each() is None for each in first)


@pytest.mark.slow
def test_switching_beside_threads_that_compute() -> None:
    """In a process of its own, which a kernel that went while another thread called it would end."""
    code = """
import threading, time, torch, nhwc
torch.set_num_threads(1)
image = torch.randn(1, 6, 4, 4).to(memory_format=torch.channels_last)
contiguous = torch.randn(1, 6, 4, 4)
expected = image.softmax(1)
done, wrong = threading.Event(), []
def joins():
    while not done.is_set():
        if not torch.equal(torch.cat([image, contiguous], 1)[:, 6:].clone(), contiguous):
            wrong.append("cat")
def normalises():
    while not done.is_set():
        if not torch.allclose(image.softmax(1), expected):
            wrong.append("softmax")
threads = [threading.Thread(target=each) for each in (joins, joins, normalises)]
for each in threads: each.start()
end = time.monotonic() + 60
while time.monotonic() < end:
    with nhwc.kernels.use("softmax", "cat", "conversion"): pass
done.set()
for each in threads: each.join()
print(len(wrong))
"""
    ran = children.script(code)
    assert ran.stdout == "0\n", ran.stderr[-2000:]


def test_a_failed_installation_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from nhwc.kernels import dispatcher

    def fail(self: dispatcher.Installation, each: object) -> None:
        raise RuntimeError("no such operator")

    with nhwc.kernels.use("cat"):
        monkeypatch.setattr(dispatcher.Installation, "add", fail)
        with pytest.raises(RuntimeError, match="no such operator"):
            nhwc.kernels.enable()
        assert nhwc.kernels.active() == ("cat",)


def test_functional_calls_and_modules_take_the_kernel_alike() -> None:
    with nhwc.kernels.use("softmax"):
        for call in (nn.Softmax(1), nn.Softmax2d(), torch.softmax, nn.functional.softmax):
            result = call(image(), 1) if call in (torch.softmax, nn.functional.softmax) else call(image())
            assert result.is_contiguous(memory_format=torch.channels_last)


def test_inference_mode_and_subclasses_still_work() -> None:
    class Named(torch.Tensor):
        pass

    plain = image()
    with nhwc.kernels.use():
        with torch.inference_mode():
            assert torch.allclose(plain.softmax(1), plain.contiguous().softmax(1))
        named = plain.as_subclass(Named).softmax(1)
    assert type(named) is Named


@pytest.mark.slow
def test_compiled_code_keeps_the_strides_it_was_promised() -> None:
    """Compiled with the kernels off and run with them on, and the other way round."""
    pool = nn.Sequential(nn.AvgPool3d(3, 1), nn.InstanceNorm3d(4), nn.AdaptiveAvgPool3d(3), nn.Softmax(1))
    x = torch.randn(2, 4, 9, 9, 9).to(memory_format=torch.channels_last_3d)
    expected = pool(x)
    for first, second in ((True, False), (False, True)):
        torch.compiler.reset()
        compiled = torch.compile(pool)
        for on in (first, second):
            if on:
                nhwc.kernels.enable()
            try:
                leaf = x.detach().requires_grad_()
                result = compiled(leaf)
                result.sum().backward()
            finally:
                nhwc.kernels.disable()
            torch.testing.assert_close(result, expected)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_thread_without_a_python_caller_takes_the_original() -> None:
    @torch.jit.script
    def body(x: torch.Tensor) -> torch.Tensor:
        return x + x

    @torch.jit.script
    def forked(x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(body, x))

    with nhwc.kernels.use():
        assert torch.equal(forked(torch.ones(2)), torch.full((2,), 2.0))


def test_generated_graphs_keep_the_strides_they_were_made_for() -> None:
    def joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b], 1).flatten(1)

    a, b = torch.randn(2, 8, 8, 8), torch.randn(2, 8, 8, 8).to(memory_format=torch.channels_last)
    with nhwc.kernels.use():
        torch.testing.assert_close(torch.compile(joined, backend="aot_eager")(a, b), joined(a, b))


def test_a_kernel_that_was_traced_and_switched_off_is_not_called() -> None:
    """torch's tracing remembers where a call went; in a process of its own, since calling there ends it."""
    code = """
import torch, nhwc
from torch._dispatch.python import enable_python_dispatcher
image = torch.randn(2, 6, 8, 8)
with enable_python_dispatcher():
    with nhwc.kernels.use("conversion"):
        image.clone()
    print(torch.equal(image.clone(), image))
"""
    ran = children.script(code)
    assert ran.stdout == "True\n", ran.stderr


def test_an_interruption_while_kernels_go_leaves_none_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from nhwc.kernels import dispatcher

    remove, calls = dispatcher.Installation.remove, []

    def interrupted(self: dispatcher.Installation) -> None:
        calls.append(self)
        if len(calls) == 2:
            raise KeyboardInterrupt
        remove(self)

    monkeypatch.setattr(dispatcher.Installation, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt), nhwc.kernels.use("softmax", "cat", "roll"):
        assert softmax_keeps()
    assert nhwc.kernels.active() == ()
    assert not softmax_keeps()


def test_a_tracer_of_real_tensors_gets_torchs_own_operators() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def shuffled(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(nn.functional.channel_shuffle(x, 2), (1, 1, 1, 1), mode="circular")

    with nhwc.kernels.use():
        graph = make_fx(shuffled)(image())
    other = image()
    assert torch.equal(graph(other), shuffled(other))
