"""What a reproducing file is made of: arguments as source, kernels with what they need, registrations."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import jinja2
import pytest
import torch
import torchvision  # noqa: F401 it registers its operators
from verification import planted

from nhwc.verification.reproduction.functions import NotAloneError, standalone
from nhwc.verification.reproduction.literals import NotWritableError, call, expression, real_values
from nhwc.verification.reproduction.registration import registrations
from nhwc.verification.reproduction.writer import _MARK, _REPRODUCING, _TEMPLATE, _free, _shows, write_reproducer

SCALE = 3
TABLE = object()


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def scaled(x: torch.Tensor) -> torch.Tensor:
    return doubled(x) * SCALE + math.pi


def with_table(x: torch.Tensor) -> object:
    return x, TABLE


def test_a_function_stands_alone_with_what_it_needs() -> None:
    code, name = standalone(scaled)
    names: dict[str, object] = {"torch": torch}
    exec(code, names)
    assert torch.equal(names[name](torch.ones(2)), scaled(torch.ones(2)))


def test_a_closure_stands_alone() -> None:
    factor = 5

    def times(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    code, name = standalone(times)
    names: dict[str, object] = {"torch": torch}
    exec(code, names)
    assert names[name](torch.ones(1)).item() == 5


def test_what_cannot_be_written_down_is_refused() -> None:
    with pytest.raises(NotAloneError, match="TABLE is a object"):
        standalone(with_table)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -0.5, "text", [1, 2], (1,), (1, (2, [3.0])), torch.float16, torch.strided, torch.channels_last],
)
def test_arguments_read_back_as_they_were(value: object) -> None:
    assert eval(expression(value, {}), {"torch": torch}) == value
    assert math.isinf(eval(expression(-math.inf, {})))


def test_an_argument_without_a_form_is_refused() -> None:
    with pytest.raises(NotWritableError, match="Generator"):
        expression(torch.Generator(), {})


def test_a_call_names_its_tensors_by_place() -> None:
    a, b = torch.ones(1), torch.ones(1)
    text = call(torch.ops.aten.add.Tensor, (a, b), {"alpha": 2}, {id(a): 0, id(b): 1})
    assert text == "torch.ops.aten.add.Tensor(tensors[0], tensors[1], alpha=2)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_real_values_read_back_in_every_bit(dtype: torch.dtype) -> None:
    import base64
    import zlib

    def unpack(shape: tuple[int, ...], dtype: torch.dtype, text: str) -> torch.Tensor:
        return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=dtype).reshape(shape)

    value = (torch.randn(3, 50) * 3).to(dtype)
    assert torch.equal(eval(real_values(value), {"torch": torch, "unpack": unpack}), value)


def test_torchs_and_torchvisions_operators_need_no_source() -> None:
    assert registrations(torch.ops.aten.relu.default, "cpu") == [""]
    assert registrations(torch.ops.torchvision.roi_align.default, "cpu") == ["import torchvision"]


@pytest.mark.parametrize("name", ["wrong_values", "wrong_values_custom", "square_backward"])
def test_an_operator_from_python_comes_with_its_kernel_and_with_its_file(name: str) -> None:
    embedded, *rest = registrations(getattr(torch.ops.planted, name).default, "cpu")
    assert f"def {name}(x" in embedded or f"def {name}(gradient" in embedded
    assert "def is_last" in embedded
    assert any(planted.__file__ in text for text in rest)


def test_a_file_of_somebody_elses_keeps_its_name(tmp_path: Path) -> None:
    assert _free(tmp_path, "reproduce_x") == tmp_path / "reproduce_x.py"
    (tmp_path / "reproduce_x.py").write_text("my notes")
    assert _free(tmp_path, "reproduce_x") == tmp_path / "reproduce_x_2.py"
    (tmp_path / "reproduce_x_2.py").write_text('"""It exits with 1 where the fault shows and with 0 where not."""')
    assert _free(tmp_path, "reproduce_x") == tmp_path / "reproduce_x_2.py"


def test_every_written_file_carries_the_mark_that_makes_it_ours() -> None:
    assert _MARK in _TEMPLATE.read_text(encoding="utf-8")


def test_a_file_that_is_run_runs_no_other_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.py"
    file.write_text(f"import os\nprint('the fault shows')\nraise SystemExit(int(os.environ[{_REPRODUCING!r}]))")
    assert _shows(file, time.monotonic() + 60) is True
    monkeypatch.setenv(_REPRODUCING, "1")
    told = write_reproducer(None, tmp_path, 8.0)  # type: ignore[arg-type]
    assert isinstance(told, str)
    assert "runs such a file itself" in told


def test_a_file_that_never_ends_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    file, noted = tmp_path / "file.py", tmp_path / "pid"
    file.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"with open({str(noted)!r}, 'w') as file:\n    file.write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    assert _shows(file, time.monotonic() + 3) is None
    status = Path(f"/proc/{noted.read_text()}/status")
    for _ in range(100):  # the kernel takes a moment to bury what was killed
        if not status.exists() or "State:\tZ" in status.read_text():
            break
        time.sleep(0.05)
    else:
        os.kill(int(noted.read_text()), 9)
        pytest.fail("what the file started is still running")


def test_no_time_left_is_no_answer(tmp_path: Path) -> None:
    assert _shows(tmp_path / "file.py", time.monotonic() - 1) is None


def louder(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0) * SCALE


def test_a_kernel_of_torchs_that_was_overridden_comes_with_its_source() -> None:
    assert registrations(torch.ops.aten.relu.default, "cpu") == [""]
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("relu", louder, "CPU", allow_override=True)
        embedded, by_file = registrations(torch.ops.aten.relu.default, "cpu")
    finally:
        library._destroy()
    assert "def louder" in embedded
    assert "library.impl('relu', louder, 'CPU', allow_override=True)" in embedded
    assert __file__ in by_file


def test_a_file_ends_quietly_where_its_reader_leaves(tmp_path: Path) -> None:
    template = jinja2.Environment(autoescape=False).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    path = tmp_path / "reproduce_relu.py"
    path.write_text(
        template.render(
            operator="aten.relu.default",
            file=path.name,
            factor=8.0,
            roundings=4.0,
            low=1e-3,
            slack=2.0,
            device="'cpu'",
            operands=[{"text": "uniform(0, (2, 3), 0.0, 1.0)", "dtype": torch.float32, "strides": (3, 1)}],
            call="torch.ops.aten.relu.default(tensors[0])",
            shown="'relu'",
        )
    )
    command = [sys.executable, "-W", "ignore", str(path)]
    whole = subprocess.run(command, capture_output=True, text=True, check=True)
    assert whole.stdout.endswith("the fault does not show\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141
