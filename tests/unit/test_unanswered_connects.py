"""TCP connects whose first packet is not answered: a full queue here, or nobody elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional

import pytest

from tests.unit import ill
from tests.unit.reports import connect
from udsprobe.model.report import Connect, Peer, Report
from udsprobe.rules import judged
from udsprobe.views.fields import cells

HERE, ELSEWHERE = "127.0.0.1:9000", "10.0.0.7:5432"
SECOND_US = 1_020_000.0


def tried(
    address: str = HERE,
    calls: int = 600,
    late: int = 0,
    failed: Optional[Dict[str, int]] = None,
    late_us: float = SECOND_US,
) -> Connect:
    """Without waiting, as proxies do; `late` connected when their SYN was sent again."""
    row = connect(address, "tcp", calls, {"EINPROGRESS": calls})
    later = ill.flat(late, late_us) if late else None
    return replace(row, failed_in_background=failed or {}, connected_later_us=later)


def asking(*rows: Connect) -> Report:
    """Its requests are in the poller for most of their time."""
    requests = ill.served(600, app=150_000.0, poll=85.0, cpu=4.0)
    return judged(replace(ill.service(requests), connects=list(rows)))


def test_a_queue_on_this_host_that_answers_late_is_full() -> None:
    found = asking(tried(late=89)).verdict
    assert found is not None
    assert (found.cause, found.subject) == ("accept-queue-full", f"tcp:{HERE}")
    says = "89 connects of 600 took 1.02 s on average: their first packet was not answered"
    assert found.evidence[0].says == says
    assert any(f"--listener={HERE}" in (each.run or "") for each in found.actions)


def test_one_that_never_answers_is_worse() -> None:
    report = asking(tried(late=10, failed={"ECANCELED": 40, "ETIMEDOUT": 5}))
    found = report.verdict
    assert found is not None and found.cause == "accept-queue-full"
    assert (found.harm.kind, found.harm.count) == ("failed", 45)
    assert all(each.id != "connect-failing" for each in report.findings)


def test_refusals_and_what_nobody_answered_are_told_once_each() -> None:
    """A listener that was restarted: first nobody listened, then its queue was full."""
    row = tried(failed={"ECONNREFUSED": 60, "ECANCELED": 40})
    told = {each.id: each for each in asking(row).findings or ()}
    assert told["connect-failing"].summary.startswith("10 % of connects")
    assert told["accept-queue-full"].summary.startswith("6.7 % of connects")


def test_the_time_that_its_connects_take_is_not_the_poller_s() -> None:
    """The same requests with and without them: 61 s of 90 s were spent connecting."""
    asked = ill.upstream(590, 2_000.0, HERE)
    requests = ill.served(600, app=150_000.0, poll=85.0, cpu=4.0)
    upstream = replace(asked, transport="tcp", peer=Peer(4712, "python", None))
    row = tried(late=60)
    report = judged(replace(ill.service(requests, upstream=[upstream]), connects=[row]))
    found = report.verdict
    assert found is not None and found.cause == "accept-queue-full"
    assert found.confidence >= 0.9
    assert all(each.id != "app-blocked" for each in report.findings or ())


def test_what_took_no_time_together_is_no_pressure() -> None:
    found = asking(tried(calls=60_000, late=10)).verdict
    assert found is not None and found.cause != "accept-queue-full"


def test_another_host_is_not_said_to_have_a_full_queue() -> None:
    """A network takes its time to answer; and who gave up there met nobody."""
    found = asking(tried(ELSEWHERE, late=600, late_us=40_000.0)).verdict
    assert found is not None and found.cause != "accept-queue-full"
    found = asking(tried(ELSEWHERE, failed={"ECANCELED": 90})).verdict
    assert found is not None and found.cause == "connect-failing"
    assert "ECANCELED, the program gave up before anybody answered" in found.summary
    assert (found.actions[0].run or "").endswith(" 10.0.0.7 5432")


@pytest.mark.parametrize(("works", "presses"), [("10.0.0.7:443", False), ("10.0.0.7:80", True)])
def test_the_slower_of_two_families_of_addresses_is_given_up(works: str, presses: bool) -> None:
    """RFC 8305: both are tried at once."""
    given_up = tried("[2001:db8::7]:443", calls=50, failed={"ECANCELED": 50})
    found = asking(given_up, tried(works, calls=50)).verdict
    assert found is not None and (found.cause == "connect-failing") is presses


def test_the_screen_says_how_many_and_how_long() -> None:
    row = tried(late=89, failed={"ECANCELED": 3})
    shown = cells.connect(row, 10.0)
    assert shown["errors"] == "EINPROGRESS 600, ECANCELED 3, 89 connected after 1.02 s"
