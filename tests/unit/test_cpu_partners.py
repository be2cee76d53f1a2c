"""Whose use of the CPUs is the targets' own demand."""

from __future__ import annotations

from dataclasses import replace
from typing import List

import pytest

from tests.unit import ill
from tests.unit.verdicts import node_served
from udsprobe.model.report import Cpu, CpuHolder, HostCpu, Peer, Report
from udsprobe.rules.accounts.cpu_holders import asked_beside, delivering_runq, foreign_runq
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


def workers_and(stranger_pct: float) -> List[CpuHolder]:
    """Who ran while the workers waited: they themselves, and a stranger."""
    return [
        CpuHolder(4711, "worker", True, 1e6 * (100 - stranger_pct), 100 - stranger_pct),
        CpuHolder(66, "ffmpeg", False, 1e6 * stranger_pct, stranger_pct),
    ]


def prefork(stranger_pct: float, workers: int = 6) -> Report:
    """Each worker computes for its client, which never pauses, and mostly waits for a sibling."""
    threads = [ill.thread(4711 + n, user=0.13, runq=0.84) for n in range(workers)]
    report = ill.service(ill.served(900, app=9000, runq=87.0, cpu=13.0), *threads)
    assert report.time is not None
    return replace(
        report,
        host=replace(report.host, cpus=2),
        time=replace(report.time, cpu_holders=workers_and(stranger_pct)),
    )


def test_workers_that_fill_the_cpus_by_themselves_are_not_kept_from_them() -> None:
    """A third of the waits is for a stranger; without it the workers still fill all CPUs."""
    found = judged(prefork(stranger_pct=33)).verdict
    assert found is not None and found.cause == "app-cpu"
    assert "cpu-contention" in [each.cause for each in found.runners_up]
    mostly = judged(prefork(stranger_pct=66)).verdict
    assert mostly is not None and mostly.cause == "cpu-contention"
    # Strangers keep so many waiting; that they are many is not why.
    many = judged(prefork(stranger_pct=90, workers=10)).verdict
    assert many is not None and "ffmpeg 66 holds it" in many.summary
    own = judged(prefork(stranger_pct=10, workers=10)).verdict
    assert own is not None and "more threads than there are CPUs" in own.summary
    # Two that take turns on one CPU of two would have room without the stranger.
    roomy = judged(prefork(stranger_pct=33, workers=2)).verdict
    assert roomy is not None and roomy.cause == "cpu-contention"


def beside_its_database(asked_pct: float, role: str = "upstream") -> Report:
    """Eight threads that ask for each row: half of the CPUs' time is theirs, a third is whom they
    ask."""
    threads = [ill.thread(4711 + n, user=0.12, runq=0.6, blocked_lock=0.25) for n in range(8)]
    served = ill.served(900, app=66_000, runq=80.0, cpu=14.0, upstream=6.0)
    peer = Peer(900, "postgres", None)
    report = ill.service(
        served, *threads, connections=[replace(ill.connection(), role=role, peer=peer)]
    )
    assert report.time is not None
    holders = [
        CpuHolder(4711, "java", True, 5e6, 50.0),
        CpuHolder(900, "postgres", False, 1e5 * asked_pct, asked_pct, is_partner=True),
        CpuHolder(66, "ffmpeg", False, 1e5 * (50 - asked_pct), 50 - asked_pct),
    ]
    time = replace(report.time, cpu_holders=holders)
    return replace(report, host=replace(report.host, cpus=2), time=time)


def test_whom_it_asks_is_its_own_demand_for_cpus() -> None:
    """Hibernate with 100 questions a request, beside its PostgreSQL: the CPUs are full."""
    found = judged(beside_its_database(asked_pct=35)).verdict
    assert found is not None and found.cause == "app-cpu"
    says = "node 4711 and those that it asks keep all CPUs that it may use 100 % busy"
    assert says in found.summary and "with those that it asks" in found.evidence[0].says
    assert asked_beside(beside_its_database(asked_pct=35)) == pytest.approx(0.7)
    # Who asks it is a load as well, and may be as quick as it likes.
    clients = beside_its_database(asked_pct=35, role="served")
    assert asked_beside(clients) == 0
    found = judged(clients).verdict
    assert found is not None and found.cause == "healthy"


def bursts(stranger_pct: float, busy_pct: float = 85.0, runq_pct: float = 85.0) -> Report:
    """Twelve workers, idle for most of the time, whose clients ask at the same moments."""
    threads = [ill.thread(4711 + n, user=0.05, runq=0.28, blocked_recv=0.6) for n in range(12)]
    requests = ill.served(900, app=40_000, runq=runq_pct, cpu=100 - runq_pct)
    report = ill.service(requests, *threads)
    assert report.time is not None
    return replace(
        report,
        host=replace(report.host, cpus=2),
        cpu=Cpu(HostCpu(busy_pct, busy_pct, 0.0, 0.0, 0.0, 2, 5), None, [], []),
        time=replace(report.time, cpu_holders=workers_and(stranger_pct)),
    )


def test_bursts_wait_for_a_cpu_behind_each_other() -> None:
    found = judged(bursts(stranger_pct=10)).verdict
    assert found is not None and found.cause == "app-cpu"
    assert "30.6 ms on average for a CPU behind each other" in found.evidence[0].says
    assert "requests wait for a CPU behind each other in node" in found.summary
    assert "more CPUs" in (found.actions[-1].do or "")
    # CPUs that are mostly idle, a wait of less than four times the work, strangers: none of that.
    idle = judged(bursts(stranger_pct=10, busy_pct=40)).verdict
    assert idle is not None and idle.cause == "healthy"
    short = judged(bursts(stranger_pct=10, runq_pct=60)).verdict
    assert short is not None and short.cause == "healthy"
    strangers = judged(bursts(stranger_pct=45)).verdict
    assert strangers is not None and strangers.cause == "cpu-contention"


def test_the_targets_own_part_of_the_waits_is_told_first() -> None:
    """Where it is more than the stranger's, that one alone is not who holds the CPUs."""
    found = judged(bursts(stranger_pct=45)).verdict
    assert found is not None
    assert "its own threads held it for 55 % of that time, ffmpeg 66 for 45 %" in found.summary


def with_requests(at_once: float, workers: int = 10) -> Report:
    """Threads of one process; so many requests are in progress."""
    report = prefork(stranger_pct=10, workers=workers)
    assert report.time is not None
    row = replace(node_served(), at_once=at_once)
    threads = [replace(t, share={**t.share, "sys_socket": 0.01}) for t in report.time.threads]
    return replace(
        report,
        requests=replace(report.requests, served_by=[row]),
        time=replace(report.time, threads=threads),
    )


@pytest.mark.parametrize(("at_once", "cause"), [(10.0, "app-cpu"), (1.0, "cpu-contention")])
def test_threads_with_a_request_each_are_no_more_than_clients_ask_for(
    at_once: float, cause: str
) -> None:
    """Others compute something else: those are too many."""
    found = judged(with_requests(at_once)).verdict
    assert found is not None and found.cause == cause
