"""Quotas against the cgroup's own files; the host's CPUs against /proc/stat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kernel.cpu_cgroup import PERIOD_US, QUOTA_US, Burner, Quota
from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root, pytest.mark.alone]
BURNT_S = 0.2


def test_a_quota_above_the_target_is_counted_as_its_files_do(tmp_path: Path) -> None:
    with Quota() as quota, Burner(quota) as burner:
        before = quota.counters()
        with Attached(["--pid", str(burner.pid)], tmp_path) as watched:
            burner.burn(BURNT_S)
            after = quota.counters()
        (row,) = watched.report["cpu"]["cgroups"]
        grown = {name: after[name] - before[name] for name in after}
        assert (row["path"], row["version"]) == (str(quota.path), quota.version)
        assert row["pids"] == [burner.pid]
        assert row["quota_cpus"] == QUOTA_US / PERIOD_US
        assert row["throttled_periods"] == grown["nr_throttled"] > 0
        assert row["periods"] == grown["nr_periods"] >= row["throttled_periods"]
        throttled_us = grown.get("throttled_usec", grown.get("throttled_time", 0) / 1000)
        assert row["throttled_us"] == pytest.approx(throttled_us, abs=0.001)
        share = 100 * row["throttled_periods"] / row["periods"]
        assert row["throttled_pct"] == pytest.approx(share, abs=0.001)
        if quota.version == 2:
            assert row["usage_cpus"] * watched.report["window"]["duration_s"] >= BURNT_S


def test_a_quota_outlives_its_target_in_the_report(tmp_path: Path) -> None:
    with Quota() as quota:
        with Burner(quota) as burner:
            watched = Attached(["--pid", str(burner.pid)], tmp_path, ending=None)
            watched.__enter__()
            burner.burn(BURNT_S)
        watched.__exit__()
        (row,) = watched.report["cpu"]["cgroups"]
        assert (row["pids"], row["quota_cpus"]) == ([], QUOTA_US / PERIOD_US)
        assert row["throttled_periods"] > 0


def test_who_has_no_quota_has_none(tmp_path: Path) -> None:
    with Attached(["--pid", str(os.getpid()), "--no-follow"], tmp_path) as watched:
        pass
    cpu = watched.report["cpu"]
    assert cpu["cgroups"] == []
    assert cpu["host"]["cpus"] == os.cpu_count()
    assert cpu["host"]["runnable"] >= 1  # udsprobe, which reads it
    if Path("/proc/pressure/cpu").exists():
        assert cpu["pressure_some_pct"] >= 0


def test_the_hosts_shares_add_up(tmp_path: Path) -> None:
    with Quota() as quota, Burner(quota) as burner:
        with Attached(["--pid", str(burner.pid)], tmp_path) as watched:
            burner.burn(BURNT_S)
        host = watched.report["cpu"]["host"]
    assert host["busy_pct"] == pytest.approx(host["user_pct"] + host["system_pct"], abs=0.002)
    assert host["busy_pct"] + host["steal_pct"] + host["iowait_pct"] <= 100.001
