"""Threads that capture models, threads that call them, and forks meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import torch
from inference.engines import fast
from torch import nn

from nhwc.inference.held_back import held_back
from nhwc.inference.turns import TURNS, Lock, Turns

WAIT_S = 0.2


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_call_of_another_shape_waits_while_another_thread_captures() -> None:
    model = nn.Conv2d(3, 4, 3).eval()
    engine, x = fast(model, torch.randn(1, 3, 8, 8)), torch.randn(1, 3, 9, 9)
    expected, found, weight = model(x), list[torch.Tensor](), model.weight
    engine._warned = True
    with held_back():
        model.weight = nn.Parameter(torch.zeros_like(weight))  # as torch.export puts fake ones in their place
        thread = started(lambda: found.append(engine(x)))
        thread.join(WAIT_S)
        model.weight = weight
    thread.join(10)
    torch.testing.assert_close(found[0], expected)


def test_callers_run_together_and_nested() -> None:
    turns, together = Turns(), threading.Barrier(2)

    def call() -> None:
        with turns.shared(), turns.shared():
            together.wait(10)

    threads = [started(call) for _ in range(2)]
    for each in threads:
        each.join(10)
    assert not together.broken


def test_who_waits_to_be_alone_goes_before_further_callers() -> None:
    turns, order, inside, end = Turns(), list[str](), threading.Event(), threading.Event()

    def first() -> None:
        with turns.shared():
            inside.set()
            end.wait(10)
            with turns.shared():  # one that is inside does not wait
                order.append("inside")

    def alone() -> None:
        with turns.alone(), turns.alone(), turns.shared():
            order.append("alone")

    def late() -> None:
        with turns.shared():
            order.append("late")

    threads = [started(first)]
    inside.wait(10)
    threads.append(started(alone))
    while not turns._waiting:
        time.sleep(0.001)
    threads.append(started(late))
    threads[-1].join(WAIT_S)
    end.set()
    for each in threads:
        each.join(10)
    assert order == ["inside", "alone", "late"]


def test_two_callers_that_capture_take_turns() -> None:
    turns, together, most = Turns(), threading.Barrier(2), [0, 0]

    def call() -> None:
        with turns.shared():
            together.wait(10)
            with turns.alone():
                most[0] += 1
                most[1] = max(most)
                time.sleep(0.01)
                most[0] -= 1

    threads = [started(call) for _ in range(2)]
    for each in threads:
        each.join(10)
    assert most == [0, 1]


def status_of_child(work: Callable[[], bool]) -> int:
    """0 where ``work`` is true in a forked child within five seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            thread = started(lambda: os._exit(0 if work() else 2))
            thread.join(5)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_until_nobody_captures() -> None:
    states, inside = ["as it was"], threading.Event()

    def capture() -> None:
        with TURNS.alone():
            states.append("changed")
            inside.set()
            time.sleep(WAIT_S)
            states.pop()

    def is_free() -> bool:
        with TURNS.alone():
            return states == ["as it was"]

    thread = started(capture)
    inside.wait(10)
    assert status_of_child(is_free) == 0
    thread.join(10)
    assert is_free()


def test_a_child_finds_locks_open() -> None:
    lock, inside, end = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            end.wait(10)

    def take() -> bool:
        with lock:
            return True

    thread = started(hold)
    inside.wait(10)
    assert status_of_child(take) == 0
    end.set()
    thread.join(10)
