"""Builds, versions, settings and what is mapped: read from made-up texts."""

import pytest
import torch
from machine.made_up import Tree

from nhwc.machine import conditions, snapshot
from nhwc.machine.build import parse_build
from nhwc.machine.mapped import huge_pages, openmp_runtimes
from nhwc.machine.settings import NOT_KNOWN, environment_settings, read

CONFIG = """PyTorch built with:
  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71)
  - CPU capability usage: AVX512
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Debug, CXX_FLAGS= -O0 -g, USE_MKLDNN=ON,
"""


def test_a_build_is_read_from_how_torch_describes_itself() -> None:
    parallel = "ATen/Parallel:\n\tat::get_num_threads() : 2\nATen parallel backend: native thread pool\n"
    build = parse_build(CONFIG, parallel, version="2.14.1", cuda="", rocm="", debug=False)
    assert (build.debug, build.blas, build.onednn, build.backend) == (True, "mkl", "3.12.0", "native thread pool")


def test_a_build_that_says_nothing_has_nothing() -> None:
    build = parse_build("", "", version="3", cuda="", rocm="", debug=False)
    assert (build.debug, build.blas, build.onednn, build.backend) == (False, "", "", "")


def test_two_openmp_runtimes_are_seen(tree: Tree) -> None:
    line = "7f0000000000-7f0000200000 r-xp 00000000 fe:00 1    /x/"
    tree.write({"proc/self/maps": f"{line}libgomp-a34b.so.1\n{line}libiomp5.so\n{line}libcompute.so\n"})
    assert openmp_runtimes(tree.sources()) == ("libgomp-a34b.so.1", "libiomp5.so")


@pytest.mark.parametrize(("text", "chosen"), [("always [madvise] never", "madvise"), ("nothing", "")])
def test_huge_pages_are_what_stands_in_brackets(tree: Tree, text: str, chosen: str) -> None:
    tree.write({"sys/kernel/mm/transparent_hugepage/enabled": text})
    assert huge_pages(tree.sources()) == chosen


def test_a_setting_that_refuses_to_be_read_is_not_known() -> None:
    def refuses() -> object:
        raise RuntimeError("both interfaces were used")

    assert (read(refuses), read(lambda: False)) == (NOT_KNOWN, "False")


def test_only_what_decides_speed_is_kept_of_the_environment() -> None:
    environ = {"OMP_NUM_THREADS": "2", "MALLOC_CONF": "x", "HOME": "/home/a", "LD_PRELOAD": "lib.so", "PASSWORD": "b"}
    kept = environment_settings(environ)
    assert kept == (("LD_PRELOAD", "lib.so"), ("MALLOC_CONF", "x"), ("OMP_NUM_THREADS", "2"))


def test_the_conditions_of_a_measurement_are_those_of_this_process(tree: Tree) -> None:
    tree.environ["OMP_NUM_THREADS"] = "3"
    found = conditions("cpu", tree.sources())
    assert found.versions[0] == ("torch", torch.__version__)
    assert {"oneDNN", "python", "torchvision", "numpy", "nhwc"} <= dict(found.versions).keys()
    assert (found.threads, found.cores, found.allocator) == (torch.get_num_threads(), 4.0, "unknown")
    assert dict(found.settings)["ATen instruction set"] == torch.backends.cpu.get_cpu_capability()
    assert found.settings[-1] == ("OMP_NUM_THREADS", "3")


def test_conditions_change_with_the_settings() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert dict(conditions().settings)["deterministic algorithms"] == "True"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_system_without_proc_can_be_looked_at(tree: Tree) -> None:
    sources = tree.sources(system="Darwin", affinity=lambda: None)
    found = snapshot(torch.device("cpu"), sources)
    assert (found.allocator, found.huge_pages, found.limits.version, found.gpu) == ("macOS malloc", "", None, None)
