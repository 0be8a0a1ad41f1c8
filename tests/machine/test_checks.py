"""What the checks say of made-up machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machine.made_up import BUILD, SETTINGS, XEON, made_up

from nhwc.errors import RegistryError
from nhwc.health import AllocatorGain, Fact, State
from nhwc.machine.cgroups import Limits
from nhwc.machine.checks import Answer, check, checks, facts
from nhwc.machine.checks.combinations import COMBINATIONS
from nhwc.machine.cores import Cores
from nhwc.machine.gpu import Gpu
from nhwc.machine.snapshot import GpuKernels
from nhwc.timing import Load, Ratio

GPU = Gpu("a GPU", (8, 0), 80 * 2**30, "9.24.0", "native", ("sm_80", "compute_90"))
GPU_SETTINGS = {
    **SETTINGS,
    "cuDNN": "True",
    "cudnn.benchmark": "True",
    "cudnn.deterministic": "False",
    "fp32 precision of convolutions": "tf32",
    "fp32 precision of matmul": "tf32",
}


def fact(subject: str, name: str, **changes: Any) -> Fact:
    (found,) = [each for each in facts(made_up(**changes)) if (each.subject, each.name) == (subject, name)]
    return found


def with_gpu(settings: dict[str, str] | None = None, environ: dict[str, str] | None = None, **of_gpu: Any) -> Any:
    merged = {**GPU_SETTINGS, **(settings or {})}
    return {"gpu": replace(GPU, **of_gpu), "settings": merged, "environ": environ or {}}


def test_nothing_is_wrong_with_a_good_machine() -> None:
    assert [each for each in facts(made_up()) if each.state is not State.FINE] == []
    assert [each for each in facts(made_up(**with_gpu())) if each.state is not State.FINE] == []


BETTER, WRONG, UNKNOWN = State.BETTER, State.WRONG, State.UNKNOWN


@pytest.mark.parametrize(
    ("subject", "name", "changes", "state", "told"),
    [
        ("torch build", "torch", {"build": replace(BUILD, debug=True)}, WRONG, "release build"),
        ("torch build", "torch", {"has_driver": True}, WRONG, "built for CUDA"),
        ("torch build", "oneDNN", {"build": replace(BUILD, onednn="")}, WRONG, "oneDNN"),
        ("torch build", "BLAS", {"build": replace(BUILD, blas="")}, UNKNOWN, "linear layers"),
        ("torch build", "threads by", {"build": replace(BUILD, backend="native thread pool")}, BETTER, "OpenMP"),
        (
            "processor",
            "ATen uses",
            {"capability": "AVX2", "environ": {"ATEN_CPU_CAPABILITY": "avx2"}},
            WRONG,
            "unset ATEN_CPU_CAPABILITY=avx2",
        ),
        ("processor", "ATen uses", {"capability": "DEFAULT", "flags": frozenset({"avx2", "fma"})}, WRONG, "has AVX2"),
        ("processor", "ATen uses", {"capability": "DEFAULT", "flags": frozenset()}, UNKNOWN, "does not tell"),
        ("processor", "oneDNN uses", {"environ": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}, WRONG, "unset ONEDNN_MAX_CPU_ISA"),
        ("processor", "oneDNN uses", {"onednn_isa": ""}, UNKNOWN, "ONEDNN_VERBOSE"),
        ("processor", "bf16", {"flags": XEON}, BETTER, "float32"),
        ("processor", "fp16", {"flags": XEON}, BETTER, "f16c only converts"),
        ("processor", "int8", {"flags": XEON - {"avx512_vnni"}}, BETTER, "quantized"),
        ("processor", "int8", {"flags": frozenset()}, UNKNOWN, "look up"),
        ("threads", "cores", {"cores": Cores(64, 4, 4, None)}, BETTER, "taskset"),
        ("threads", "processor quota", {"cores": Cores(4, 4, 4, 1.5)}, BETTER, "run 1 threads"),
        ("threads", "processor quota", {"limits": Limits()}, UNKNOWN, "control group"),
        ("threads", "throttling", {"limits": Limits(2.0, None, 100, 12, 2)}, WRONG, "raise the limit"),
        ("threads", "torch's threads", {"threads": 8}, WRONG, "OMP_NUM_THREADS=4"),
        ("threads", "torch's threads", {"cores": Cores(4, 4, 4, 1.5)}, WRONG, "OMP_NUM_THREADS=1"),
        ("threads", "torch's threads", {"cores": Cores(4, 4, 2, None)}, BETTER, "OMP_NUM_THREADS=2"),
        ("threads", "torch's threads", {"threads": 1}, BETTER, "OMP_NUM_THREADS=4"),
        ("threads", "thread counts set", {"environ": {"OMP_NUM_THREADS": "all"}}, WRONG, "whole number"),
        (
            "threads",
            "thread counts set",
            {"environ": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "4"}},
            BETTER,
            "one value",
        ),
        ("threads", "placement set", {"environ": {"KMP_BLOCKTIME": "1"}}, BETTER, "no effect on libgomp.so.1"),
        ("memory", "allocator", {"allocator": "glibc malloc"}, BETTER, "apt install libtcmalloc-minimal4"),
        (
            "memory",
            "allocator",
            {"allocator": "glibc malloc", "preloadable": (Path("/usr/lib/libjemalloc.so.2"),)},
            BETTER,
            "LD_PRELOAD=/usr/lib/libjemalloc.so.2",
        ),
        ("memory", "allocator", {"allocator": "musl malloc"}, BETTER, "mimalloc"),
        ("memory", "allocator", {"allocator": "unknown"}, UNKNOWN, "does not tell"),
        ("memory", "huge pages", {"huge_pages": "madvise"}, BETTER, "THP_MEM_ALLOC_ENABLE=1"),
        ("memory", "huge pages", {"huge_pages": "never"}, BETTER, "transparent_hugepage"),
        ("memory", "huge pages", {"huge_pages": ""}, UNKNOWN, "no setting"),
        ("memory", "another allocator gains", {"gain": AllocatorGain(failure="it died")}, UNKNOWN, "it died"),
        ("torch settings", "oneDNN", {"settings": {"oneDNN": "False"}}, WRONG, "mkldnn.enabled = True"),
        (
            "torch settings",
            "deterministic algorithms",
            {"settings": {"deterministic algorithms": "True"}},
            BETTER,
            "(False)",
        ),
        (
            "torch settings",
            "float32 on the CPU",
            {"settings": {"oneDNN fp32 precision of convolutions": "bf16"}},
            BETTER,
            "verify",
        ),
        ("GPU", "cuDNN", with_gpu(cudnn="7.5.1"), WRONG, "7.6"),
        ("GPU", "cuDNN", with_gpu(cudnn=""), WRONG, "with cuDNN"),
        ("GPU", "cuDNN", with_gpu({"cuDNN": "False"}), WRONG, "cudnn.enabled = True"),
        ("GPU", "fp16", with_gpu(capability=(6, 1)), BETTER, "tensor cores"),
        ("GPU", "bf16", with_gpu(capability=(7, 0)), BETTER, "float16"),
        ("GPU", "TF32 in convolutions", with_gpu({"fp32 precision of convolutions": "False"}), BETTER, "allow_tf32"),
        ("GPU", "TF32 in matrix products", with_gpu({"fp32 precision of matmul": "ieee"}), BETTER, "matmul_precision"),
        (
            "GPU",
            "TF32 in matrix products",
            with_gpu({"fp32 precision of matmul": "not known"}),
            UNKNOWN,
            "two interfaces",
        ),
        (
            "GPU",
            "nhwc's kernels",
            with_gpu() | {"gpu_kernels": GpuKernels(False, ("group_norm", "avg_pool3d"))},
            BETTER,
            "install triton",
        ),
        ("GPU", "cudnn.benchmark", with_gpu({"cudnn.benchmark": "False"}), BETTER, "benchmark = True"),
        ("GPU", "cudnn.deterministic", with_gpu({"cudnn.deterministic": "True"}), BETTER, "deterministic = False"),
    ],
)
def test_what_is_not_fine_says_what_to_do(
    subject: str, name: str, changes: dict[str, Any], state: State, told: str
) -> None:
    found = fact(subject, name, **changes)
    assert found.state is state
    assert told in found.advice


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("oneDNN prints every primitive", {"environ": {"ONEDNN_VERBOSE": "1"}}),
        ("two OpenMP runtimes in one process", {"openmp": ("libgomp.so.1", "libiomp5.so")}),
        ("synchronous launches on the GPU", with_gpu(environ={"CUDA_LAUNCH_BLOCKING": "1"})),
        ("GPU memory without a cache", with_gpu(environ={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})),
        ("TF32 forbidden by the environment", with_gpu(environ={"NVIDIA_TF32_OVERRIDE": "0"})),
        ("a torch without kernels for this GPU", with_gpu(capability=(7, 5))),
        ("instance norm's gradient at batch 1", {"instance_norm_errs": True}),
    ],
)
def test_each_known_bad_combination_is_found_alone_and_has_its_source(name: str, changes: dict[str, Any]) -> None:
    found = [each for each in facts(made_up(**changes)) if each.subject == "known to be bad"]
    assert [each.name for each in found] == [name]
    assert found[0].source.startswith("https://")


def test_every_combination_has_a_machine_above() -> None:
    (parameters,) = [
        mark.args[1]
        for mark in test_each_known_bad_combination_is_found_alone_and_has_its_source.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    assert {name for name, _ in parameters} == {each.name for each in COMBINATIONS}


@pytest.mark.parametrize(
    ("capability", "architectures"),
    [((8, 6), ("sm_80",)), ((12, 0), ("sm_80", "compute_90")), ((9, 0), ("sm_90a",)), ((8, 0), ())],
)
def test_newer_gpus_run_what_older_code_allows(capability: tuple[int, int], architectures: tuple[str, ...]) -> None:
    found = facts(made_up(**with_gpu(capability=capability, architectures=architectures)))
    assert "a torch without kernels for this GPU" not in {each.name for each in found}


def gain(low: float, high: float, setting: str) -> AllocatorGain:
    ratio = Ratio(low, low, high, 8)
    return AllocatorGain("glibc malloc", "tcmalloc", setting, ratio, (3.0,) * 8, (2.0,) * 8, 18818.0, 0.0)


@pytest.mark.parametrize(
    ("gain", "state", "told"),
    [
        (gain(1.4, 1.6, "LD_PRELOAD=/lib/x.so"), BETTER, "run python with LD_PRELOAD=/lib/x.so"),
        (gain(1.4, 1.6, "MALLOC_TOP_PAD_=1"), BETTER, "apt install"),
        (gain(0.9, 1.1, "LD_PRELOAD=/lib/x.so"), State.FINE, ""),
        (gain(1.4, 1.6, ""), State.FINE, ""),
        (gain(0.8, 0.9, ""), BETTER, "slower here"),
    ],
)
def test_the_measured_gain_is_judged_by_its_interval(gain: AllocatorGain, state: State, told: str) -> None:
    found = fact("memory", "another allocator gains", gain=gain)
    assert found.state is state
    assert told in found.advice
    assert "18,818 to 0 page faults" in found.value


@pytest.mark.parametrize(
    ("load", "state"),
    [
        (Load(4.0, 4, others=1.5), State.WRONG),
        (Load(4.0, 4, others=0.1), State.FINE),
        (Load(4.0, 2, others=1.5), State.FINE),
    ],
)
def test_other_processes_are_wrong_where_they_leave_too_few_cores(load: Load, state: State) -> None:
    assert fact("threads", "other processes", load=load).state is state


def test_other_processes_are_left_out_where_the_system_does_not_tell() -> None:
    assert ("threads", "other processes") not in [(each.subject, each.name) for each in facts(made_up())]


def test_checks_have_names_of_their_own() -> None:
    subject, name = checks()[0]
    with pytest.raises(RegistryError, match="registered twice"):
        check(subject, name)(lambda _machine: None)
    with pytest.raises(RegistryError, match="subject and a name"):
        check("", "x")


def test_an_answer_that_is_not_fine_must_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="nothing says what to do"):
        Answer("4", State.WRONG)
