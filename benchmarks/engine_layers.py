"""The engine's convolutions layer by layer: GFLOP/s, the share of the measured arithmetic peak, and torch's own conv2d.

``python benchmarks/engine_layers.py resnet50 --batch 1 --threads 2``. Every candidate of a layer is timed for a moment
and the fastest kept; then it, torch in channels last and the peak (multiplications with additions on registers alone)
run in turn for ``--seconds``. What is printed are the best times of each: what the machine does between is not the
kernel's. A share is of the best peak of the whole run; Winograd's may be over 1, its operations are counted as direct.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 the usual name

import nhwc.inference.steps  # noqa: F401 registers the algorithms
from nhwc.inference.native import ALIGNMENT_BYTES, Activation, Placed, Program, Step
from nhwc.inference.operations import Convolution, Fused
from nhwc.inference.steps.registry import Request, candidates
from nhwc.kernels.native import library

_peak = library.Function("engine_peak", "llp")
_PEAK_ROUNDS = 20_000
#: Seconds for which each candidate is timed before one is chosen.
_MOMENT_S = 0.03


@dataclass(frozen=True)
class Layer:
    """A convolution with relu: inputs x size x size to outputs, padding kernel // 2."""

    inputs: int
    size: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        groups = f" /{self.groups}" if self.groups > 1 else ""
        return f"{self.inputs}x{self.size} {self.outputs} {self.kernel}x{self.kernel}s{self.stride}{groups}"


def _resnet50() -> Iterator[Layer]:
    yield Layer(3, 224, 64, 7, 2)
    inputs, size = 64, 56
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        yield from (Layer(inputs, size, width), Layer(width, size, width, 3, stride))
        yield Layer(inputs, size, width * 4, 1, stride)
        inputs, size = width * 4, size // stride
        yield from (Layer(width, size, inputs), Layer(inputs, size, width), Layer(width, size, width, 3))


def _mobilenet_v2() -> Iterator[Layer]:
    yield from (Layer(3, 224, 32, 3, 2), Layer(32, 112, 16), Layer(16, 112, 96))
    for inputs, wide, size, outputs in (
        *((24, 144, 56, 24), (32, 192, 28, 32), (64, 384, 14, 64), (96, 576, 14, 96)),
        *((160, 960, 7, 160), (320, 1280, 7, 1280)),
    ):
        yield Layer(inputs, size, wide)
        if outputs != wide:
            yield Layer(wide, size, outputs)


def _vgg16() -> Iterator[Layer]:
    size, inputs = 224, 3
    for width, count in ((64, 2), (128, 2), (256, 2), (512, 2), (512, 1)):
        for _ in range(count):
            yield Layer(inputs, size, width, 3)
            inputs = width
        size //= 2


def _resnext50() -> Iterator[Layer]:
    for width, size in ((128, 56), (256, 28), (512, 14), (1024, 7)):
        yield Layer(width, size, width, 3, 1, 32)


NETWORKS = {"resnet50": _resnet50, "mobilenet_v2": _mobilenet_v2, "vgg16": _vgg16, "resnext50": _resnext50}


class Contest:
    """One layer's data and the ways to run it."""

    def __init__(self, layer: Layer, batch: int, threads: int) -> None:
        self.layer, self.threads = layer, threads
        self.weight = torch.randn(layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel)
        self.bias = torch.randn(layer.outputs)
        self.x = self._rows(torch.randn(batch, layer.inputs, layer.size, layer.size))
        self.own_weight = self._rows(self.weight)
        self.y = self._rows(self.torch())
        self.operations = 2 * self.y.numel() * self.weight[0].numel()

    def _rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous(memory_format=torch.channels_last)

    def torch(self) -> torch.Tensor:
        layer = self.layer
        return F.conv2d(self.x, self.own_weight, self.bias, layer.stride, layer.kernel // 2, 1, layer.groups)

    def steps(self, prefix: str) -> Iterator[Step]:
        """Every candidate whose label starts so."""
        layer, pair = self.layer, (self.layer.stride, self.layer.stride)
        padding = (layer.kernel // 2, layer.kernel // 2)
        conv = Convolution(self.weight, self.bias, pair, padding, (1, 1), layer.groups)
        placed = [Placed.constant(each) for each in (self.x, self.y)]
        fused = Fused(Activation.CLAMP, 0.0, float("inf"))
        for candidate in candidates(Request(conv, (placed[0],), placed[1], fused, threads=self.threads)):
            if candidate.label.startswith(prefix):
                yield candidate.build()

    def runner(self, step: Step) -> Callable[[], object]:
        """A call of the step; torch runs nothing here."""
        program, table = Program([step]), (ctypes.c_void_p * 2)(None, None)
        scratch = torch.empty(step.scratch_bytes + ALIGNMENT_BYTES, dtype=torch.uint8)

        def run() -> None:
            address = -(-scratch.data_ptr() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            program.run(table, address, self.threads)

        return run


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest(calls: dict[str, Callable[[], object]], until_s: float) -> dict[str, float]:
    """The least seconds of each call, made in turn until the time is over."""
    best = {name: seconds(call) for name, call in calls.items()}
    end = time.perf_counter() + until_s
    while time.perf_counter() < end:
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))
    return best


@dataclass(frozen=True)
class Result:
    """Operations a second, in thousand millions, of the engine's fastest candidate, torch and the peak beside them."""

    layer: Layer
    candidate: str
    engine: float
    torch: float
    peak: float

    def line(self, peak: float) -> str:
        numbers = f"{self.engine:8.1f} {self.engine / peak:6.0%} {self.torch:7.1f} {self.engine / self.torch:6.2f}"
        return f"{self.layer.name:24} {numbers}  {self.candidate}"


def measured(contest: Contest, prefix: str, until_s: float) -> Result:
    runners = {step.label: contest.runner(step) for step in contest.steps(prefix)}
    tried = fastest(runners, _MOMENT_S * len(runners))
    chosen = min(tried, key=tried.__getitem__)
    operations = ctypes.c_int64()

    def peak() -> None:
        _peak(contest.threads, _PEAK_ROUNDS, ctypes.addressof(operations))

    best = fastest({"engine": runners[chosen], "torch": contest.torch, "peak": peak}, until_s)
    engine, own = (contest.operations / best[name] / 1e9 for name in ("engine", "torch"))
    return Result(contest.layer, chosen, engine, own, operations.value / best["peak"] / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description="GFLOP/s and share of the peak of the engine's convolutions.")
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="per layer")
    parser.add_argument("--algorithm", default="", help="only candidates whose label starts so, such as direct")
    chosen = parser.parse_args()
    if unknown := set(chosen.networks) - set(NETWORKS):
        parser.error(f"no layers of {', '.join(sorted(unknown))}, only of {', '.join(NETWORKS)}")
    torch.set_num_threads(chosen.threads)
    results = {
        network: [
            measured(Contest(layer, chosen.batch, chosen.threads), chosen.algorithm, chosen.seconds)
            for layer in dict.fromkeys(NETWORKS[network]())
        ]
        for network in chosen.networks or NETWORKS
    }
    peak = max(result.peak for found in results.values() for result in found)
    print(f"torch {torch.__version__}, {library.status().instruction_set}, batch {chosen.batch}")
    print(f"{chosen.threads} threads, measured peak {peak:.1f} GFLOP/s")
    for network, found in results.items():
        print(f"\n{network:24}  GFLOP/s  share   torch  ratio  candidate")
        for result in found:
            print(result.line(peak))


if __name__ == "__main__":
    main()
