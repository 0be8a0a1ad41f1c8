"""Cores against affinity, hyperthreads and quota."""

from machine.made_up import Tree

from nhwc.machine.cores import Cores, available_cores, cores


def test_hyperthreads_share_a_core(tree: Tree) -> None:
    tree.siblings("0,2", "1,3", "0,2", "1,3")
    assert cores(tree.sources()) == Cores(4, 4, 2, None)


def test_cores_are_counted_behind_the_allowed_threads_alone(tree: Tree) -> None:
    tree.siblings("0,2", "1,3", "0,2", "1,3")
    found = cores(tree.sources(affinity=lambda: frozenset({0, 2})))
    assert (found.allowed, found.physical, found.available) == (2, 1, 2.0)


def test_the_quota_counts_where_it_is_smaller(tree: Tree) -> None:
    tree.version_two("/")
    tree.write({"cgroup/cpu.max": "150000 100000"})
    assert available_cores(tree.sources()) == 1.5
    tree.write({"cgroup/cpu.max": "900000 100000"})
    assert available_cores(tree.sources()) == 4.0


def test_a_system_that_tells_nothing_has_all_its_processors(tree: Tree) -> None:
    assert cores(tree.sources(system="Darwin", affinity=lambda: None, logical=8)) == Cores(8, 8, None, None)


def test_this_machine_has_a_core() -> None:
    assert available_cores() > 0
