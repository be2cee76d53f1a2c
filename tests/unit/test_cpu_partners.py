"""Whose use of the CPUs is the targets' own demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import ill
from udsprobe.model.report import CpuHolder, Report
from udsprobe.rules.accounts.cpu_holders import delivering_runq, foreign_runq
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.rules.judge import judged


def kept_off(*holders: CpuHolder, transport: str = "tcp") -> Report:
    """Half of a thread's time waits for a CPU that those had."""
    report = ill.service(
        ill.served(900, app=9000, runq=90.0, cpu=10.0),
        ill.thread(user=0.4, runq=0.5),
        connections=[replace(ill.connection(), transport=transport)],
    )
    assert report.time is not None
    return replace(report, time=replace(report.time, cpu_holders=list(holders)))


def test_clients_that_ended_are_the_service_s_own_demand() -> None:
    ended = kept_off(CpuHolder(0, None, False, 4e6, 90.0, is_partner=True))
    assert foreign_runq(ended) == 0
    found = judged(ended).verdict
    assert found is not None and found.cause == "app-cpu"


def test_strangers_that_ended_are_not() -> None:
    strangers = CpuHolder(0, None, False, 3e6, 75.0)
    partners = CpuHolder(0, None, False, 1e6, 25.0, is_partner=True)
    assert foreign_runq(kept_off(strangers, partners)) == pytest.approx(0.75)


def test_handing_on_packets_is_the_transport() -> None:
    softirq = CpuHolder(15, "ksoftirqd/0", False, 3e6, 75.0)
    stranger = CpuHolder(66, "ffmpeg", False, 1e6, 25.0)
    report = kept_off(softirq, stranger)
    assert (foreign_runq(report), delivering_runq(report)) == (0.25, 0.75)
    found, alone = (request_time(whole_service(each)) for each in (report, kept_off(stranger)))
    assert found.sum_us("runq") == pytest.approx(0.25 * alone.sum_us("runq"))
    assert found.sum_us("transport") > alone.sum_us("transport") + 0.7 * alone.sum_us("runq")


def test_packets_of_others_are_a_stranger_s() -> None:
    """Targets that use Unix sockets only have none on their way."""
    report = kept_off(CpuHolder(15, "ksoftirqd/0", False, 3e6, 75.0), transport="unix")
    assert (foreign_runq(report), delivering_runq(report)) == (1.0, 0.0)
