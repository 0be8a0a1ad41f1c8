"""Limits of control groups, read from made-up hierarchies of both versions."""

from machine.made_up import Tree

from nhwc.machine.cgroups import Limits, limits


def test_version_two_takes_the_tightest_limit_on_the_way_up(tree: Tree) -> None:
    tree.version_two("/pod/box")
    tree.write(
        {
            "cgroup/cgroup.controllers": "cpu memory",
            "cgroup/pod/cpu.max": "150000 100000\n",
            "cgroup/pod/memory.max": "max\n",
            "cgroup/pod/box/cpu.max": "300000 100000\n",
            "cgroup/pod/box/memory.max": "2147483648\n",
            "cgroup/pod/box/cpu.stat": "usage_usec 5\nnr_periods 200\nnr_throttled 50\nthrottled_usec 9\n",
        }
    )
    assert limits(tree.sources()) == Limits(1.5, 2 * 2**30, 200, 50, 2)


def test_a_container_that_sees_its_own_group_as_the_root(tree: Tree) -> None:
    tree.version_two("/")
    tree.write({"cgroup/cgroup.controllers": "cpu", "cgroup/cpu.max": "200000 100000"})
    assert limits(tree.sources()) == Limits(2.0, version=2)


def test_a_container_whose_group_has_no_folder_of_its_own_reads_the_mount_point(tree: Tree) -> None:
    tree.version_two("/system.slice/docker-1.scope", root="/system.slice/docker-2.scope")
    tree.write({"cgroup/cpu.max": "50000 100000"})
    assert limits(tree.sources()).cores == 0.5


def test_a_mount_whose_root_only_begins_alike_is_another_group(tree: Tree) -> None:
    tree.version_two("/docker/ab", root="/docker/a")
    tree.write({"cgroup/cpu.max": "100000 100000", "cgroup/b/cpu.max": "900000 100000"})
    assert limits(tree.sources()).cores == 1.0


def test_version_one_reads_quota_memory_and_throttling(tree: Tree) -> None:
    tree.version_one("/docker/7", root="/docker")
    tree.write(
        {
            "cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cgroup/cpu,cpuacct/7/cpu.cfs_quota_us": "250000",
            "cgroup/cpu,cpuacct/7/cpu.cfs_period_us": "100000",
            "cgroup/cpu,cpuacct/7/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 77\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "cgroup/memory/7/memory.limit_in_bytes": "1073741824",
        }
    )
    assert limits(tree.sources()) == Limits(2.5, 2**30, 10, 3, 1)


def test_version_one_without_limits_has_none(tree: Tree) -> None:
    tree.version_one("/")
    tree.write(
        {
            "cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        }
    )
    assert limits(tree.sources()) == Limits(version=1)


def test_without_proc_nothing_is_known(tree: Tree) -> None:
    assert limits(tree.sources()) == Limits()


def test_lines_that_make_no_sense_are_left_out(tree: Tree) -> None:
    tree.version_two("/")
    tree.write({"proc/self/cgroup": "nonsense\n0::/\n", "cgroup/cpu.max": "much little", "cgroup/memory.max": "?"})
    assert limits(tree.sources()) == Limits(version=2)
