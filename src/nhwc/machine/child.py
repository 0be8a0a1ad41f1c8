"""A process of its own that answers questions over pipes, one line of JSON for one.

What must not share a process (allocators, thread pools of several runtimes) runs in children; they end with the pipe,
so that none outlives its parent.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any, Self

from nhwc.errors import NhwcError

_LAST_WORDS_S = 5.0


class ChildError(NhwcError):
    """A child process died, did not answer in time, or answered that it could not."""


class Child:
    """One running child. Use it in a ``with`` block: it is gone afterwards, whatever happens."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """Start ``command`` with the environment ``environ``, this process's own where None.

        Raises ChildError where it cannot be started.
        """
        self.name = name
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=None if environ is None else dict(environ),
                text=True,
            )
        except OSError as error:
            self._complaints.close()
            raise ChildError(f"{name} cannot be started: {error.strerror or error}") from error
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def tell(self, question: object) -> None:
        """Send a question without waiting for its answer; a dead child is noticed by ``hear``."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:  # the pipe is closed: hear() says why
            pass

    def hear(self, timeout_s: float) -> Any:
        """The next answer. Raises ChildError where the child died, says it cannot, or is silent for ``timeout_s``."""
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise ChildError(f"{self.name} did not answer within {timeout_s:.0f} s") from None
        if line is None:
            raise ChildError(f"{self.name} died with {self._fate()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise ChildError(f"{self.name} answered what is no JSON: {line[:100]!r}") from None
        if "error" in answer:
            raise ChildError(f"{self.name}: {answer['error']}")
        return answer["answer"]

    def ask(self, question: object, timeout_s: float) -> Any:
        """Send a question and return its answer. Raises ChildError as ``hear`` does."""
        self.tell(question)
        return self.hear(timeout_s)

    def _fate(self) -> str:
        code = self._process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:300]}" if lines else ""
        return f"signal {-code}{last}" if code < 0 else f"exit code {code}{last}"

    def close(self) -> None:
        """End the child; harmless where it has ended."""
        self._process.kill()
        self._process.wait()
        self._listener.join(timeout=_LAST_WORDS_S)
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what it was still told cannot be flushed to a dead child
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve(answer: Callable[[Any], object]) -> None:
    """The child's side: answer every question from stdin until it ends; an exception becomes an answer too.

    Whatever else writes to stdout goes to stderr from here on, so that no library's message is taken for an answer.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        reply: dict[str, object]
        try:
            reply = {"answer": answer(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the parent decides what to make of it
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def environ_for_python(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a child finds the modules that this process finds."""
    return {**environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
