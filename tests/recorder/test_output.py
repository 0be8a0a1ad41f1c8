"""Standard output and error: what a user prints passes, oneDNN's lines do not, and both are given back."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nhwc.recorder.output import captured

HEADER = """
import os, sys
import torch
from torch import nn
from nhwc.recorder import Options, record
torch.set_num_threads(1)
conv, image = nn.Conv2d(16, 16, 3), torch.randn(2, 16, 9, 9)
"""


def run(body: str, **environment: str) -> tuple[str, str]:
    """What a program of its own writes to standard output and error."""
    clean = {name: value for name, value in os.environ.items() if name not in ("ONEDNN_VERBOSE", "DNNL_VERBOSE")}
    source = str(Path(__file__).parents[2] / "src")
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEADER + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**clean, "PYTHONPATH": source, **environment},
    )
    return result.stdout, result.stderr


def test_what_the_step_prints_comes_out_and_the_library_is_quiet() -> None:
    out, error = run(
        """
        class Talks(nn.Module):
            def forward(self, x):
                print("printed")
                os.write(1, b"no line end: ")
                x = conv(x)
                os.write(1, b"written\\n")
                os.write(2, b"to error\\n")
                if raises:
                    raise raises
                print("to the end", end="")
                return x

        for raises in (None, ValueError, KeyboardInterrupt):
            try:
                trace = record(Talks(), image, options=Options(train=raises is None))
                assert any(call.reorders for call in trace.calls)
            except BaseException as raised:
                print(type(raised).__name__)
            conv(image)
        os.write(1, b"the descriptor is back\\n")
        """
    )
    # buffered and unbuffered writes keep their own order, each in full and once
    assert out.count("no line end: written\n") == 3
    rest = out.replace("no line end: written\n", "").replace("the descriptor is back\n", "")
    assert rest == "printed\nto the endprinted\nModelError\nprinted\nKeyboardInterrupt\n"
    assert out.count("the descriptor is back\n") == 1
    assert error == "to error\n" * 3


def test_a_user_who_asked_the_library_to_talk_still_hears_it_and_stdout_may_be_closed() -> None:
    out, error = run(
        """
        record(conv, image)
        print("middle", flush=True)
        conv(image)
        os.close(1)
        trace = record(conv, image)
        assert trace.calls[0].name == "convolution"
        os._exit(0)
        """,
        ONEDNN_VERBOSE="1",
    )
    before, after = out.split("middle")
    assert "exec,cpu,convolution" in before
    assert "exec,cpu,convolution" in after
    assert error == ""


def test_only_the_lines_of_ours_are_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        with captured(descriptor, lambda output: output.replace(b"ours\n", b"")) as capture:
            os.write(descriptor, b"theirs\nours\n")
            position = capture.position()
            os.write(descriptor, b"\xff no end")
            assert capture.read()[position:] == b"\xff no end"
        assert capture.position() == 0
        assert capture.read() == b""
        os.write(descriptor, b" after")
        assert path.read_bytes() == b"theirs\n\xff no end after"
    finally:
        os.close(descriptor)


def test_the_descriptor_is_given_back_when_the_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        with pytest.raises(ZeroDivisionError), captured(descriptor, bytes):
            write_and_fail(descriptor)
        assert path.read_bytes() == b"kept"
    finally:
        os.close(descriptor)


def write_and_fail(descriptor: int) -> None:
    os.write(descriptor, b"kept")
    raise ZeroDivisionError


def test_a_lot_of_output_passes(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        with captured(descriptor, bytes):
            os.write(descriptor, b"x" * 3_000_000)
        assert path.stat().st_size == 3_000_000
    finally:
        os.close(descriptor)
