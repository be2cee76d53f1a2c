"""A server that sends what nobody has asked for just now: pushes, and streams of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from tests.unit import ill, reports
from udsprobe.model.report import Peer, Report, Upstream, Verdict
from udsprobe.rules.judge import judged


def pushing(
    sends: int, upstream: Optional[Upstream] = None, handshakes: Optional[int] = None
) -> Report:
    """No request, and so many messages to clients that wait for them."""
    syscalls = [reports.syscall("sendto", "tcp", calls=sends), reports.syscall("recvfrom", "tcp")]
    asked = [upstream] if upstream is not None else []
    served = replace(ill.served(0), tls_handshakes=handshakes)
    return ill.service(served, syscalls=syscalls, upstream=asked)


def verdict(report: Report) -> Verdict:
    found = judged(report).verdict
    assert found is not None
    return found


def test_pushes_are_told_and_nothing_says_whether_they_are_late() -> None:
    found = verdict(pushing(4_000))
    assert (found.cause, found.harm.kind, found.confidence) == ("healthy", "none", 0.5)
    says = "no request-reply turns were seen: 4,000 messages were sent unasked (pushes, streams)"
    assert f"No bottleneck: {says}, and nothing is saturated" in found.summary


def test_what_handshakes_send_is_not_said_to_be_unasked() -> None:
    found = verdict(pushing(4_000, handshakes=2_000))
    says = "no request-reply turns were seen: 2,000 TLS handshakes of clients, and 4,000 messages"
    assert f"No bottleneck: {says} were sent, theirs among them, and nothing" in found.summary


@pytest.mark.parametrize("sends", [0, 900])
def test_few_of_them_prove_little(sends: int) -> None:
    found = verdict(pushing(sends))
    assert "unasked" not in found.summary and found.confidence < 0.1


def test_own_requests_are_no_pushes() -> None:
    row = Upstream("tcp", "127.0.0.1:6379", Peer(55, "redis-server"), 10, ill.flat(10, 500.0))
    assert "unasked" not in verdict(pushing(4_000, row)).summary


def test_a_server_with_owed_replies_is_not_sure() -> None:
    report = pushing(4_000)
    row = ill.served_by(4711, 0)
    waiting = replace(row.unanswered, count=9, oldest_us=3e6)
    row = replace(row, unanswered=waiting)
    report = replace(report, requests=replace(report.requests, served_by=[row]))
    assert verdict(report).confidence < 0.1
