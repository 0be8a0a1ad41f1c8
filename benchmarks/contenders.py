"""One contender of peers.py in a process of its own: prepares a model for one runtime, then runs blocks of it.

Answers over pipes: {"prepare": {"contender", "model", "batch", "threads", "seed"}} and {"block": steps}. A new
contender is one function here that registers itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from peer_models import build
from torch import nn

from nhwc.machine.child import serve

Run = Callable[[], Any]
Prepare = Callable[[nn.Module, torch.Tensor, int], Run]


@dataclass(frozen=True)
class Contender:
    """A runtime: what it is called for people, the packages that it needs, and what prepares it."""

    name: str
    label: str
    packages: tuple[str, ...]
    prepare: Prepare


CONTENDERS: dict[str, Contender] = {}


def contender(name: str, label: str, *packages: str) -> Callable[[Prepare], Prepare]:
    """Register a function that takes (model, input, threads) and returns what runs it once; a name is taken once."""

    def register(prepare: Prepare) -> Prepare:
        if name in CONTENDERS:
            raise ValueError(f"the contender {name!r} is registered twice")
        CONTENDERS[name] = Contender(name, label, packages, prepare)
        return prepare

    return register


@contender("eager_nchw", "eager, contiguous")
def eager_nchw(model: nn.Module, x: torch.Tensor, _threads: int) -> Run:
    """The baseline of every ratio."""
    return lambda: model(x)


@contender("eager_nhwc", "eager, channels last")
def eager_nhwc(model: nn.Module, x: torch.Tensor, _threads: int) -> Run:
    """Model and input in channels last; the input is converted once, as a loader would deliver it."""
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return lambda: model(x)


@contender("inductor", "torch.compile, frozen, channels last")
def inductor(model: nn.Module, x: torch.Tensor, _threads: int) -> Run:
    """torch.compile with weights frozen into the graph, in channels last."""
    import torch._inductor.config as config

    config.freezing = True
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    return lambda: compiled(x)


@contender("engine", "nhwc.engine")
def engine(model: nn.Module, x: torch.Tensor, threads: int) -> Run:
    """nhwc's own engine, given the same contiguous input as the other runtimes."""
    import nhwc

    fast = nhwc.engine(model, x, threads=threads)
    return lambda: fast(x)


@contender("onnxruntime", "ONNX Runtime", "onnx", "onnxscript", "onnxruntime")
def onnx_runtime(model: nn.Module, x: torch.Tensor, threads: int) -> Run:
    """ONNX Runtime on the CPU, with all its graph optimisations."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: session.run(["y"], feed)[0]


@contender("openvino", "OpenVINO", "openvino")
def openvino_(model: nn.Module, x: torch.Tensor, threads: int) -> Run:
    """OpenVINO on the CPU, in float32 where it would choose bfloat16 by itself."""
    import openvino  # type: ignore[import-untyped]

    converted = openvino.convert_model(model, example_input=x, input=list(x.shape))
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = openvino.Core().compile_model(converted, "CPU", settings).create_infer_request()
    given = openvino.Tensor(x.numpy(), shared_memory=True)
    return lambda: request.infer([given])[0]


def missing(name: str) -> list[str]:
    """Packages that a contender needs and that are not installed."""
    absent = []
    for package in CONTENDERS[name].packages:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            absent.append(package)
    return absent


def disagreement(reference: torch.Tensor, output: object) -> float:
    """The greatest difference from the reference as a share of its greatest value; nan where a value is none."""
    found = torch.as_tensor(output).reshape(reference.shape).double()
    return float((found - reference).abs().max() / reference.abs().max())


class Runner:
    """The worker's state: one prepared contender."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Prepare, or run a block."""
        if "prepare" in question:
            return self.prepare(**question["prepare"])
        return self.block(question["block"])

    def prepare(self, contender: str, model: str, batch: int, threads: int, seed: int) -> dict[str, Any]:
        """Build the model, take eager float32's output, prepare the contender, compare, and time one step."""
        torch.set_num_threads(threads)
        net, x = build(model, batch, seed)
        reference = net(x).double()
        start = time.perf_counter()
        self.run = CONTENDERS[contender].prepare(net, x, threads)
        error = disagreement(reference, self.run())
        prepared_s = time.perf_counter() - start
        return {"disagreement": error, "prepared_s": prepared_s, "ms": min(self.block(1)["ms"] for _ in range(3))}

    def block(self, steps: int) -> dict[str, float]:
        """Milliseconds per step, after one that wakes threads and fills caches."""
        if self.run is None:
            raise RuntimeError("nothing was prepared")
        self.run()
        start = time.perf_counter_ns()
        for _ in range(steps):
            self.run()
        return {"ms": (time.perf_counter_ns() - start) / 1e6 / steps}


if __name__ == "__main__":
    with torch.no_grad():
        serve(Runner().answer)
