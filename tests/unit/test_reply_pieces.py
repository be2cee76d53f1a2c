"""Pauses of replies that have begun: whose time they are, and what the verdict says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional, Sequence

import pytest

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.growth import together
from udsprobe.model.report import (
    InPieces,
    OwnRequests,
    Peer,
    Report,
    ServedBy,
    StageMeans,
    Upstream,
    Verdict,
    Waiting,
)
from udsprobe.model.requests.reply_pieces import in_all, in_pieces, pause_parts_us
from udsprobe.model.requests.served_requests import APP_PARTS
from udsprobe.rules import judged
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.sample import PieceCounts
from udsprobe.views.fields.breakdown import beside_requests

PID, COUNT, PAUSED_US = 4711, 400, 80_000.0
NONE = Waiting(0, None)
PARTS = set(APP_PARTS.values())


def pieces(
    spent: Optional[Dict[str, float]] = None, count: int = COUNT, paused_us: float = PAUSED_US
) -> InPieces:
    if not count:
        return InPieces(0, None, None)
    return InPieces(count, paused_us + 1000.0, paused_us, spent)


def asked(answers: InPieces) -> Upstream:
    peer = Peer(812, "node")
    latency = ill.flat(COUNT, 300.0)
    return Upstream("tcp", "127.0.0.1:3000", peer, COUNT, latency, in_pieces=answers)


def serving(replies: Optional[InPieces], upstream: Sequence[Upstream] = ()) -> ServedBy:
    own = [OwnRequests(row.transport, row.address, row.peer, row.count, 300.0) for row in upstream]
    return ServedBy(
        *(PID, "nginx", COUNT, 40.0, ill.flat(COUNT, 400.0), StageMeans(), None, 0, 0, own),
        in_progress=NONE,
        unread=NONE,
        asking=NONE,
        in_pieces=replies,
    )


def reported(row: ServedBy, *upstream: Upstream) -> Report:
    thread = replace(ill.thread(PID, "nginx", user=0.02, blocked_poll=0.97), pid=PID)
    report = ill.service(ill.served(COUNT, app=300.0, recv_wait=0.0, recv=0.0, send=0.0), thread)
    requests = replace(report.requests, served_by=[row], upstream=list(upstream))
    return replace(report, requests=requests, targets=[target(PID, "nginx")])


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("spent", "part", "cause"),
    [
        ("poll", "timer", "app-blocked"),
        ("other", "sleep", "app-blocked"),
        ("lock", "lock", "app-blocked"),
        ("disk", "disk", "app-blocked"),
        ("upstream", "upstream", "upstream-wait"),
    ],
)
def test_a_pause_is_the_programs_time(spent: str, part: str, cause: str) -> None:
    report = reported(serving(pieces({spent: 100.0})))
    time = request_time(whole_service(report))
    # A wait for a lock is in part the work of who runs meanwhile.
    assert time.mean_us(part) == pytest.approx(PAUSED_US, rel=0.03)
    assert time.total_us == pytest.approx(COUNT * (PAUSED_US + 300.0), rel=0.01)
    found = verdict(report)
    assert found.cause == cause
    assert found.summary.startswith("replies end 81 ms after they begin on average: ")
    assert "pauses after a reply's first bytes" in "; ".join(e.says for e in found.evidence)


def test_a_sleep_in_a_pause_is_before_the_rest_of_the_reply() -> None:
    found = verdict(reported(serving(pieces({"poll": 100.0}))))
    assert "while requests wait for the rest of its reply" in found.summary


def test_while_the_answer_pauses_who_passes_it_on_has_nothing_to_send() -> None:
    upstream = asked(pieces(paused_us=79_000.0))
    row = serving(pieces({"poll": 99.0, "cpu": 1.0}), [upstream])
    time = request_time(whole_service(reported(row, upstream)))
    assert time.mean_us("upstream") == pytest.approx(79_000.0, rel=0.01)
    assert time.mean_us("timer") == pytest.approx(200.0, rel=0.01)
    found = verdict(reported(row, upstream))
    assert (found.cause, found.subject) == ("upstream-wait", "tcp:127.0.0.1:3000")
    assert "node 812 at tcp:127.0.0.1:3000, which takes 79.3 ms per request" in found.summary


def test_a_wait_for_the_rest_of_an_answer_is_one_for_the_upstream() -> None:
    upstream = asked(pieces(paused_us=79_000.0))
    report = reported(serving(pieces(count=0), [upstream]), upstream)
    app = ill.served(COUNT, app=80_000.0, poll=100.0, recv_wait=0.0, recv=0.0, send=0.0)
    report = replace(report, requests=replace(report.requests, served=app))
    assert request_time(whole_service(report)).mean_us("upstream") == pytest.approx(79_000.0)
    found = verdict(report)
    assert (found.cause, found.subject) == ("upstream-wait", "tcp:127.0.0.1:3000")


def test_what_is_no_sleep_is_nobodys_wait() -> None:
    parts = pause_parts_us([serving(pieces({"cpu": 100.0}))], 10 * COUNT * PAUSED_US)
    assert parts == {"cpu": COUNT * PAUSED_US}


def test_pauses_of_threads_that_are_not_known_are_events() -> None:
    assert pause_parts_us([serving(pieces())], 0.0) == {"poll": COUNT * PAUSED_US}


@pytest.mark.parametrize("replies", [pieces(count=0), None, pieces(paused_us=4.0)])
def test_without_pauses_all_is_as_before(replies: Optional[InPieces]) -> None:
    report = reported(serving(replies))
    assert verdict(report).cause == "healthy"
    assert beside_requests(report) == []


@pytest.mark.parametrize(("transfer_us", "is_told"), [(200.0, False), (162_000.0, True)])
def test_moving_on_a_long_reply_is_told_beside_the_request(
    transfer_us: float, is_told: bool
) -> None:
    """A request ends with the first call that sends of its reply."""
    found = verdict(reported(serving(InPieces(COUNT, transfer_us, 0.0))))
    assert found.cause == "healthy"
    assert (", and its reply 162 ms from the first byte to the last." in found.summary) is is_told


def test_the_line_of_the_screen() -> None:
    assert beside_requests(reported(serving(pieces()))) == [
        "400 replies in pieces: 81.0ms to the last on average, paused for 80.0ms"
    ]


def test_counters_of_a_window() -> None:
    before = PieceCounts(4, 4_000_000, 1_000_000, {"user": 5})
    now = PieceCounts(6, 10_000_000, 5_000_000, {"user": 8, "blocked_disk": 1})
    assert in_pieces("", now, before) == InPieces(
        2, 3000.0, 2000.0, {**dict.fromkeys(PARTS, 0.0), "cpu": 75.0, "disk": 25.0}
    )
    assert in_pieces("", now, now) == InPieces(0, None, None)
    assert in_pieces("", None, None) is None


def test_several_counters_and_rows_in_one() -> None:
    one = PieceCounts(1, 5, 3, {"user": 1})
    assert together([None, one, one]) == PieceCounts(2, 10, 6, {"user": 2})
    assert together([None]) is None
    rows = [serving(pieces()), serving(None), serving(pieces(paused_us=0.0))]
    assert in_all(rows) == InPieces(2 * COUNT, PAUSED_US / 2 + 1000.0, PAUSED_US / 2)
