"""Children that answer, die, hang and chatter."""

import sys

import pytest

from nhwc.machine.child import Child, ChildError, environ_for_python

SERVING = """
import os, sys, time
from nhwc.machine.child import serve
def answer(question):
    print("chatter")
    if question == "die":
        print("out of luck", file=sys.stderr)
        os._exit(7)
    if question == "hang":
        time.sleep(60)
    if question == "raise":
        raise ValueError("not that\\none")
    return {"got": question}
serve(answer)
"""


def child(code: str = SERVING) -> Child:
    import os

    return Child("the child", [sys.executable, "-c", code], environ_for_python(os.environ))


def test_it_answers_one_line_for_one_whatever_else_it_prints() -> None:
    with child() as running:
        assert running.ask([1, 2], 60) == {"got": [1, 2]}
        running.tell("first")
        running.tell("second")
        assert [running.hear(60), running.hear(60)] == [{"got": "first"}, {"got": "second"}]


def test_what_it_raises_is_told_and_it_lives_on() -> None:
    with child() as running:
        with pytest.raises(ChildError, match="the child: ValueError: not that one"):
            running.ask("raise", 60)
        assert running.ask("x", 60) == {"got": "x"}


def test_one_that_dies_is_told_with_its_last_words() -> None:
    with child() as running:
        with pytest.raises(ChildError, match="the child died with exit code 7: out of luck"):
            running.ask("die", 60)
        with pytest.raises(ChildError):
            running.ask("x", 5)


def test_one_that_hangs_is_given_up_and_ended() -> None:
    with child() as running:
        running.ask("x", 60)
        with pytest.raises(ChildError, match="did not answer within 0 s"):
            running.ask("hang", 0.1)
    assert running._process.poll() is not None


def test_one_that_cannot_be_started_is_told() -> None:
    with pytest.raises(ChildError, match="cannot be started"):
        Child("the child", ["/nowhere/python"])
