"""Triton's kernels without a GPU: run by its interpreter and compiled by its compiler, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from meta.project import ROOT

import nhwc
from nhwc.kernels import dispatcher, gpu
from nhwc.kernels.registry import Replacement, kernels

INTERPRETED = Path(__file__).parent / "triton_interpreted.py"
COMPILED = Path(__file__).parent / "triton_compiled.py"
NO_GPU = not torch.cuda.is_available()
needs_triton = pytest.mark.skipif(
    sys.platform != "linux", reason="triton is for Linux; there it comes with the extra that brings pytest"
)


def interpreted(*arguments: str) -> str:
    """The output of the tests that the interpreter runs; one that fails, or none, is a failure here."""
    options = ("-q", "--no-header", "-p", "no:cacheprovider")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", *options, str(INTERPRETED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@needs_triton
@pytest.mark.timeout(900)
def test_the_interpreter_finds_every_result_right() -> None:
    assert " passed" in interpreted("-k", "exact and float32")


@pytest.mark.slow
@pytest.mark.timeout(1600)
@needs_triton
def test_the_interpreter_finds_every_layout_derivative_and_type_right() -> None:
    assert " passed" in interpreted("-m", "slow or not slow", "-k", "not (exact and float32)")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_triton
def test_every_program_compiles_for_a_gpu(tmp_path: Path) -> None:
    """Without one: for compute capability 8.0 and 9.0, down to the machine's code."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(COMPILED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "every program was compiled" in done.stdout


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU, where they are installed")
def test_what_is_for_a_gpu_is_not_installed_without_one() -> None:
    installed: list[Replacement] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher.Installation, "add", lambda _self, each: installed.append(each))
        for kernel in kernels():
            dispatcher.install(kernel)
    assert installed
    assert {each.key for each in installed} <= {"CPU", "AutogradCPU", "CompositeImplicitAutograd"}


def test_every_replacement_for_a_gpu_says_where_it_runs_and_torch_has_its_operator() -> None:
    for_cuda = [each for kernel in kernels() for each in kernel.replacements if "CUDA" in each.key]
    assert len(for_cuda) > 15
    for each in for_cuda:
        assert each.where in {gpu.has_triton, gpu.is_present}
        torch.library.get_kernel(each.operator, each.key)


def test_loading_the_package_does_not_load_triton() -> None:
    code = "import sys, nhwc.kernels; assert 'triton' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)


def test_a_tensor_of_the_cpu_is_not_the_gpus() -> None:
    assert not gpu.is_interpreted()
    assert not NO_GPU or not gpu.has_triton()
    assert not gpu.serves(torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last))
    assert nhwc.kernels.active() == ()
