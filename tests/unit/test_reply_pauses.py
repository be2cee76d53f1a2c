"""Pauses of replies that have begun: whose time they are, and what the verdict says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Optional, Sequence

import pytest

from tests.unit import ill
from tests.unit.reports import target
from udsprobe.model.report import (
    HttpReplies,
    OwnRequests,
    Peer,
    Report,
    ServedBy,
    StageMeans,
    Upstream,
    Verdict,
    Waiting,
)
from udsprobe.model.requests.http_replies import http_replies, in_one, together
from udsprobe.model.requests.reply_pauses import pause_parts_us
from udsprobe.rules import judged
from udsprobe.rules.accounts.request_time import request_time
from udsprobe.rules.accounts.service import whole_service
from udsprobe.sample import HttpReplyCounts
from udsprobe.views.fields.breakdown import pauses

PID, COUNT, PAUSED_US = 4711, 400, 80_000.0
NONE = Waiting(0, None)


def http(in_pieces: Optional[int] = COUNT, paused_us: float = PAUSED_US) -> HttpReplies:
    means = (paused_us + 1000.0, paused_us) if in_pieces else (None, None)
    return HttpReplies(COUNT, 0, None, {}, in_pieces, *means)


def asked(replies: HttpReplies) -> Upstream:
    return Upstream(
        "tcp", "127.0.0.1:3000", Peer(812, "node"), COUNT, ill.flat(COUNT, 300.0), http=replies
    )


def serving(
    replies: HttpReplies,
    paused: Optional[Dict[str, float]],
    upstream: Sequence[Upstream] = (),
) -> ServedBy:
    own = [OwnRequests(row.transport, row.address, row.peer, row.count, 300.0) for row in upstream]
    return ServedBy(
        *(PID, "nginx", COUNT, 40.0, ill.flat(COUNT, 400.0), StageMeans(), None, 0, 0, own),
        in_progress=NONE,
        unread=NONE,
        asking=NONE,
        http=replies,
        paused_time_pct=paused,
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
    report = reported(serving(http(), {spent: 100.0}))
    time = request_time(whole_service(report))
    # A wait for a lock is in part the work of who runs meanwhile.
    assert time.mean_us(part) == pytest.approx(PAUSED_US, rel=0.03)
    assert time.total_us == pytest.approx(COUNT * (PAUSED_US + 300.0), rel=0.01)
    found = verdict(report)
    assert found.cause == cause
    assert found.summary.startswith("replies end 81 ms after their first bytes on average: ")
    assert "pauses after a reply's first bytes" in "; ".join(e.says for e in found.evidence)


def test_a_sleep_in_a_pause_is_before_the_rest_of_the_reply() -> None:
    found = verdict(reported(serving(http(), {"poll": 100.0})))
    assert "while requests wait for the rest of its reply" in found.summary


def test_while_the_answer_pauses_who_passes_it_on_has_nothing_to_send() -> None:
    upstream = asked(http(paused_us=79_000.0))
    row = serving(http(), {"poll": 99.0, "cpu": 1.0}, [upstream])
    time = request_time(whole_service(reported(row, upstream)))
    assert time.mean_us("upstream") == pytest.approx(79_000.0, rel=0.01)
    assert time.mean_us("timer") == pytest.approx(200.0, rel=0.01)
    found = verdict(reported(row, upstream))
    assert (found.cause, found.subject) == ("upstream-wait", "tcp:127.0.0.1:3000")
    assert "node 812 at tcp:127.0.0.1:3000, which takes 79.3 ms per request" in found.summary


def test_more_than_the_sleep_is_nobodys_wait() -> None:
    row = serving(http(), {"cpu": 100.0})
    parts = pause_parts_us([row], [asked(http(paused_us=10 * PAUSED_US))])
    assert parts == {"cpu": COUNT * PAUSED_US}


def test_pauses_of_threads_that_are_not_known_are_events() -> None:
    assert pause_parts_us([serving(http(), None)], []) == {"poll": COUNT * PAUSED_US}


@pytest.mark.parametrize("replies", [http(0), http(None), http(paused_us=4.0)])
def test_without_pauses_all_is_as_before(replies: HttpReplies) -> None:
    found = verdict(reported(serving(replies, None)))
    assert found.cause == "healthy"
    assert pauses(reported(serving(replies, None))) is None


def test_the_line_of_the_screen() -> None:
    assert pauses(reported(serving(http(), {"poll": 100.0}))) == (
        "400 replies in pieces end 81.0ms after the first piece on average: pauses 80.0ms"
    )


def test_counters_of_a_window() -> None:
    before = HttpReplyCounts(10, 0, 0, {}, 4, 4_000_000, 1_000_000)
    now = HttpReplyCounts(20, 0, 0, {}, 6, 10_000_000, 5_000_000)
    grew = http_replies("", now, before)
    assert grew is not None
    assert (grew.in_pieces, grew.transfer_mean_us, grew.paused_mean_us) == (2, 3000.0, 2000.0)


def test_recordings_from_before_have_none() -> None:
    former = HttpReplyCounts(20, 0, 0, {})
    grew = http_replies("", former, None)
    assert grew is not None and grew.in_pieces is grew.paused_mean_us is None
    whole = together([former, HttpReplyCounts(1, 0, 0, {}, 1, 5, 3)])
    assert whole is not None and (whole.in_pieces, whole.paused_ns) == (1, 3)
    none = together([former])
    assert none is not None and none.in_pieces is None


def test_several_rows_in_one() -> None:
    whole = in_one([http(), http(None), http(paused_us=0.0)])
    assert whole is not None
    assert (whole.in_pieces, whole.paused_mean_us) == (2 * COUNT, PAUSED_US / 2)
