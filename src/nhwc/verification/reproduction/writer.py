"""Writes the file for one fault, runs it alone, and keeps the first form that shows the fault."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
import torch

from nhwc.verification.judge import FLOOR_ROUNDINGS, LOW_EPSILON, SLACK_ROUNDINGS
from nhwc.verification.operators import Fault
from nhwc.verification.reproduction.literals import NotWritableError, call, random_values, real_values
from nhwc.verification.reproduction.registration import registrations
from nhwc.verification.structure import operands

#: More than this does not belong into a source file; made-up values are then all that is tried.
_MOST_BYTES = 4_000_000
#: All forms of one file together: a form that loads the user's script may run for as long as that does.
_TIMEOUT_S = 60.0
#: Set where a file is run, so that a script it loads, which may call nhwc.verify itself, does not run one in its turn.
_REPRODUCING = "NHWC_REPRODUCING"
_MARK = "It exits with 1 where the fault shows"
_TEMPLATE = Path(__file__).parent / "reproduce.py.jinja"


@dataclass(frozen=True)
class Written:
    """The file, and whether it showed the fault when it was run alone (None where it was not run to its end)."""

    path: Path
    reproduces: bool | None


def write_reproducer(fault: Fault, folder: Path, factor: float) -> Written | str:
    """Write ``reproduce_<operator>.py`` for a fault into ``folder`` and run it; a sentence where that cannot be done.

    Made-up values are tried before the real ones, the kernel's own source before the file that registers it. A file of
    that name that is not ours stays: ours then gets a number.
    """
    if os.environ.get(_REPRODUCING):
        return f"this process runs such a file itself ({_REPRODUCING} is set)"
    path = _free(folder, _stem(fault))
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        texts = list(_forms(fault, factor, path.name))
    except NotWritableError as error:
        return str(error)
    if not texts:
        return "how the operator was registered cannot be written down, or its operands are too large"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        first: bool | None = None
        for place, text in enumerate(texts):
            path.write_text(text, encoding="utf-8")
            shows = _shows(path, deadline)
            if shows:
                return Written(path, True)
            first = shows if place == 0 else first
        path.write_text(texts[0], encoding="utf-8")
    except OSError as error:
        return f"{path} cannot be written ({error.strerror or error}); give another folder"
    return Written(path, first)


def _stem(fault: Fault) -> str:
    name = str(fault.func).removesuffix(".default").removeprefix("aten.")
    return f"reproduce_{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_')}"


def _free(folder: Path, stem: str) -> Path:
    """The first name in the folder that is not taken by a file of somebody else's."""
    names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
    return next(path for name in names if _is_ours(path := folder / f"{name}.py"))


def _is_ours(path: Path) -> bool:
    try:
        return not path.exists() or _MARK in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # it cannot be written either, which is told then


def _forms(fault: Fault, factor: float, file: str) -> Iterator[str]:
    inputs = operands(fault.args, fault.kwargs)
    places = {id(tensor): place for place, tensor in enumerate(inputs)}
    shown = call(fault.func, fault.args, fault.kwargs, places)
    device = next((tensor.device for tensor in inputs), torch.device("cpu"))
    values = [fault.values[id(tensor)] for tensor in inputs]
    size = sum(value.numel() * value.element_size() for value in values)
    environment = jinja2.Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 it writes Python
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    for registration in registrations(fault.func, device.type):
        for made_up in (True, False):
            if not made_up and size > _MOST_BYTES:
                continue
            texts = [_values(value, place, made_up) for place, value in enumerate(values)]
            yield template.render(
                operator=str(fault.func),
                verb="raises" if fault.raised else "answers differently",
                reason=_sentence(fault),
                file=file,
                others=" and torchvision" if "import torchvision" in registration else "",
                registration=registration,
                factor=factor,
                roundings=FLOOR_ROUNDINGS,
                low=LOW_EPSILON,
                slack=SLACK_ROUNDINGS,
                device=repr(str(device)),
                operands=[
                    {"text": text, "dtype": value.dtype, "strides": fault.strides[id(tensor)]}
                    for text, value, tensor in zip(texts, values, inputs, strict=True)
                ],
                call=shown,
                shown=repr(shown),
            )


def _values(value: torch.Tensor, place: int, made_up: bool) -> str:
    text = random_values(value, place) if made_up else None
    if text is None and value.numel() * value.element_size() > _MOST_BYTES:
        raise NotWritableError("its operands are too large for a source file")
    return text or real_values(value)


def _sentence(fault: Fault) -> str:
    text = fault.reason.replace("\\", "/").replace('"""', "'''")
    return f"{text[:1].upper()}{text[1:]}."


def _shows(path: Path, deadline: float) -> bool | None:
    """Whether the file exits with 1 when it is run alone, away from the user's folder; None where time is up."""
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    command = [sys.executable, "-W", "ignore", str(path.resolve())]
    with (
        tempfile.TemporaryDirectory() as elsewhere,
        subprocess.Popen(  # noqa: S603 our own file, with the Python that runs us
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=elsewhere,
            env={**os.environ, _REPRODUCING: "1"},
            start_new_session=True,
        ) as child,
    ):
        try:
            output, _ = child.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            return None
        finally:  # also on Ctrl-C, which a session of its own does not hear; and whatever the file has left running
            _end(child)
    # the exit code alone is not enough: Python gives the same for an exception
    return child.returncode == 1 and output.rstrip().endswith(b"the fault shows")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a child with everything that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()
