"""The load meter on made-up counters."""

import os
import resource
from pathlib import Path

import pytest

from nhwc.machine.load import LoadMeter
from nhwc.timing import Load


class Machine:
    """Counters of a made-up machine, and the time that goes by on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stat, self.cgroup = folder / "stat", folder / "cpu.stat"
        self.wall_s = self.own_s = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.wall_s)
        monkeypatch.setattr(os, "sysconf", lambda _name: 100)
        monkeypatch.setattr(os, "cpu_count", lambda: 4)
        monkeypatch.setattr(resource, "getrusage", self._used)

    def _used(self, who: int) -> resource.struct_rusage:
        own = self.own_s if who == resource.RUSAGE_SELF else 0.0
        return resource.struct_rusage((own, 0.0, *[0] * 14))

    def at(self, *, wall: float, own: float, busy: float, stolen: float = 0.0, throttled: str = "") -> None:
        self.wall_s, self.own_s = wall, own
        self.stat.write_text(f"cpu  {round(busy * 100)} 0 0 9999 0 0 0 {round(stolen * 100)} 0 0\ncpu0 1 1 1 1\n")
        if throttled:
            self.cgroup.write_text(f"nr_periods 7\n{throttled}\n")

    def meter(self) -> LoadMeter:
        return LoadMeter(self.stat, (self.cgroup,))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_what_others_used_is_what_was_busy_without_us(machine: Machine) -> None:
    machine.at(wall=100.0, own=10.0, busy=50.0)
    meter = machine.meter()
    machine.at(wall=110.0, own=28.0, busy=73.0, stolen=2.0)
    assert meter.read(2) == Load(cores=4.0, threads=2, others=0.5, stolen=0.2)


@pytest.mark.parametrize(
    ("before", "after"),
    [("throttled_usec 0", "throttled_usec 2500000"), ("throttled_time 0", "throttled_time 2500000000")],
)
def test_throttling_is_read_from_either_version_of_cgroups(machine: Machine, before: str, after: str) -> None:
    machine.at(wall=0.0, own=0.0, busy=0.0, throttled=before)
    meter = machine.meter()
    machine.at(wall=10.0, own=5.0, busy=5.0, throttled=after)
    assert meter.read(2) == Load(cores=4.0, threads=2, throttled=0.25)


def test_counters_that_lag_behind_our_own_give_nothing_below_zero(machine: Machine) -> None:
    machine.at(wall=0.0, own=0.0, busy=0.0)
    meter = machine.meter()
    machine.at(wall=1.0, own=2.0, busy=1.9)
    assert meter.read(2) == Load(cores=4.0, threads=2)


def test_a_system_without_counters_tells_nothing(tmp_path: Path) -> None:
    assert LoadMeter(tmp_path / "missing").read(2) is None
    (tmp_path / "odd").write_text("cpu words\n")
    assert LoadMeter(tmp_path / "odd").read(2) is None


def test_no_time_gone_tells_nothing(machine: Machine) -> None:
    machine.at(wall=1.0, own=0.0, busy=0.0)
    assert machine.meter().read(2) is None
