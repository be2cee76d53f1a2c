"""CPU shares and quotas of a window."""

from __future__ import annotations

import pytest

from tests.unit.samples import BOOT_NS, SECOND_NS, cpu, host_cpu, observation, quota, sample
from udsprobe.model.difference import report
from udsprobe.model.report import CpuAffinity
from udsprobe.model.threads.cpu_use import cpu_use
from udsprobe.sample import AffinityReading


def test_shares_are_of_all_cpus_and_add_up() -> None:
    later = host_cpu(user=1100, system=550, idle=90_800, iowait=110, steal=50, cpus=2, runnable=9)
    found = cpu_use(sample(), sample(10.0, cpu=cpu(host=later, pressure_some_us=1_005_000)))
    assert found is not None and found.host is not None
    assert (found.host.user_pct, found.host.system_pct, found.host.busy_pct) == (10.0, 5.0, 15.0)
    assert (found.host.iowait_pct, found.host.steal_pct) == (1.0, 4.0)
    assert (found.host.cpus, found.host.runnable) == (2, 9)
    assert found.pressure_some_pct == pytest.approx(10.0)


def test_no_tick_has_no_shares() -> None:
    found = cpu_use(sample(), sample(0.001))
    assert found is not None and found.host is not None
    assert found.host.busy_pct is None and found.host.steal_pct is None


def test_idle_that_goes_back_counts_as_none() -> None:
    later = host_cpu(user=1100, idle=89_999, iowait=90)
    found = cpu_use(sample(), sample(1.0, cpu=cpu(host=later)))
    assert found is not None and found.host is not None
    assert (found.host.busy_pct, found.host.iowait_pct) == (100.0, 0.0)


def test_what_is_hidden_is_not_measured() -> None:
    hidden = cpu(host=None, pressure_some_us=None, cgroups=None)
    found = cpu_use(sample(), sample(1.0, cpu=hidden))
    assert found is not None
    assert (found.host, found.cgroups, found.pressure_some_pct) == (None, None, None)
    assert cpu_use(sample(cpu=None), sample(1.0)) is None


def test_a_quota_of_the_window() -> None:
    first = quota(periods=10, throttled_periods=4, throttled_ns=1_000, usage_ns=SECOND_NS)
    last = quota(periods=110, throttled_periods=79, throttled_ns=5_001_000, usage_ns=6 * SECOND_NS)
    found = cpu_use(sample(cpu=cpu(cgroups=(first,))), sample(10.0, cpu=cpu(cgroups=(last,))))
    assert found is not None and found.cgroups is not None
    (row,) = found.cgroups
    assert (row.quota_cpus, row.usage_cpus) == (0.5, 0.5)
    assert (row.periods, row.throttled_periods, row.throttled_pct) == (100, 75, 75.0)
    assert (row.throttled_us, row.pids) == (5_000.0, [4711])


def test_a_quota_that_was_seen_later_is_used_from_then_on() -> None:
    seen = quota(since_ns=BOOT_NS + 8 * SECOND_NS, usage_ns=SECOND_NS, quota_us=None)
    found = cpu_use(sample(), sample(10.0, cpu=cpu(cgroups=(seen,))))
    assert found is not None and found.cgroups is not None
    (row,) = found.cgroups
    assert (row.quota_cpus, row.usage_cpus, row.throttled_pct) == (None, 0.5, None)


def test_it_is_in_the_report() -> None:
    found = report(observation(), sample(), sample(1.0, cpu=cpu(cgroups=(quota(),))))
    assert found.cpu is not None and found.cpu.cgroups is not None
    assert [row.path for row in found.cpu.cgroups] == ["/sys/fs/cgroup/web"]


def test_pressure_is_of_the_time_between_its_own_readings() -> None:
    """All the time: the kernel adds up until it is read, which is behind the sample's moment."""
    first = sample(cpu=cpu(pressure_some_us=0, pressure_read_ns=BOOT_NS))
    late_ns = SECOND_NS // 100
    full = cpu(pressure_some_us=1_010_000, pressure_read_ns=BOOT_NS + SECOND_NS + late_ns)
    found = cpu_use(first, sample(1.0, cpu=full))
    assert found is not None and found.pressure_some_pct == 100.0
    half = cpu(pressure_some_us=505_000, pressure_read_ns=BOOT_NS + SECOND_NS + late_ns)
    found = cpu_use(first, sample(1.0, cpu=half))
    assert found is not None and found.pressure_some_pct == pytest.approx(50.0)


def test_pressure_by_a_clock_that_runs_faster_is_all_of_the_time() -> None:
    first = sample(cpu=cpu(pressure_some_us=0, pressure_read_ns=BOOT_NS))
    ahead = cpu(pressure_some_us=1_000_500, pressure_read_ns=BOOT_NS + SECOND_NS)
    found = cpu_use(first, sample(1.0, cpu=ahead))
    assert found is not None and found.pressure_some_pct == 100.0


def test_cpus_that_targets_may_not_use_and_how_idle_those_were() -> None:
    first = AffinityReading((0,), (1, 2), (4711,), (), 100, 300)
    last = AffinityReading((0,), (1, 2), (4711, 4712), (), 250, 500)
    found = cpu_use(sample(cpu=cpu(affinities=(first,))), sample(10.0, cpu=cpu(affinities=(last,))))
    assert found is not None and found.affinities == [
        CpuAffinity([0], [1, 2], 75.0, [], [4711, 4712])
    ]


def test_a_limit_that_was_set_in_the_window_has_no_share() -> None:
    seen = AffinityReading((0,), (1,), (4711,), ("/sys/fs/cgroup/a/cpuset.cpus",), 100, 300)
    found = cpu_use(sample(cpu=cpu(affinities=())), sample(10.0, cpu=cpu(affinities=(seen,))))
    assert found is not None and found.affinities is not None
    assert found.affinities[0].others_idle_pct is None
    old = cpu_use(sample(), sample(10.0, cpu=cpu(affinities=None)))
    assert old is not None and old.affinities is None
