"""A thread computes under an interpreter's lock: nobody accepts, nothing completes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import ill
from tests.unit.reports import listener, target
from udsprobe.model.report import Latency, Report, Verdict
from udsprobe.rules import judged

PID = 4711


def matching(ran: float, locked: float = 0.93, language: str = "python", tid: int = PID) -> Report:
    """A server with a thread for each connection; those that computed have ended since.

    Args:
        ran: the part of a CPU that these used. locked: of the time of the thread that accepts, the
            part in which it waited for the lock; `tid` accepts.
    """
    acceptor = ill.thread(PID, "python", blocked_lock=locked)
    late = replace(
        listener("127.0.0.1:80", "tcp", pids=[PID], peak=13),
        established=13,
        accepted=13,
        accepted_by={str(PID): 13},
        accepted_by_thread={str(tid): 13},
        wait_us=Latency(13, 2_840_000.0),
    )
    report = ill.service(ill.served(0), acceptor, listeners=[late])
    time = report.time
    assert time is not None
    whole_s = time.total_s + 2 * ill.SECONDS
    total = {name: share * time.total_s / whole_s for name, share in time.total.items()}
    total["user"] = ran * ill.SECONDS / whole_s
    served = replace(target(PID, language), language=language)
    return replace(report, targets=[served], time=replace(time, total_s=whole_s, total=total))


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_what_keeps_the_lock_is_the_cause_and_not_who_waits_for_it() -> None:
    found = verdict(matching(ran=0.84))
    assert (found.cause, found.class_) == ("app-cpu", "not-transport")
    assert found.harm is not None and "for accept()" in found.harm.says
    assert "is 84 % busy, its threads contend for one lock" in found.summary


@pytest.mark.parametrize(
    "report",
    [
        matching(ran=0.3),
        matching(ran=0.84, locked=0.2),
        # Another one accepts, and that has ended.
        matching(ran=0.84, tid=PID + 1),
        # No lock of an interpreter: a pool that waits for work.
        matching(ran=0.84, language="java"),
    ],
    ids=["idle", "accepts", "another", "java"],
)
def test_a_late_acceptor_is_one_where_nobody_computes_under_its_lock(report: Report) -> None:
    assert verdict(report).cause == "accept-starved"
