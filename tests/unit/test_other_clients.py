"""Replies that follow what another client sent: whose wait that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Sequence

import pytest

from tests.unit import ill
from tests.unit.kept import call, kept, story
from udsprobe.model.report import Author, Peer, Report, Wait, Waiting, WholeRequest
from udsprobe.model.requests.whole_requests import whole_request
from udsprobe.rules import judged
from udsprobe.rules.accounts.other_clients import follows_another_client, share_of_other_clients

SLEPT = call("epoll_wait", 60, 29_800, waits="poll", asleep=True, result=1)
ASKED = call("recvfrom", 50, 10, whose="this", fd=7, waits="recv")
OTHER = call("recvfrom", 29_900, 10, whose="other", fd=8, waits="recv")
REPLY = call("sendto", 29_980, 20, whose="this", fd=7, waits="send", result=2)


def request(*last: List[object], poll_ms: float = 29.8, **changes: Any) -> WholeRequest:
    """One that waited in the poller; `last`: its thread's calls after that."""
    activity_ns = {"user": 100_000, "runq": 20_000, "blocked_poll": int(poll_ms * 1e6)}
    app_ns = sum(activity_ns.values())
    calls = [ASKED, SLEPT, *last, REPLY]
    times = {"app_ns": app_ns, "last_gap_ns": app_ns, "latency_ns": app_ns + 80_000}
    return whole_request(
        kept(1, text=story(activity_ns=activity_ns, calls=calls, **times, **changes))
    )


QUEUE, TIMER = request(OTHER), request()


def report(slowest: Sequence[WholeRequest], sampled: Sequence[WholeRequest] = ()) -> Report:
    served = ill.served(400, app=29_900, poll=99.5, cpu=0.5)
    found = ill.service(served, ill.thread(user=0.02))
    kept_ones = replace(found.requests, slowest=list(slowest), sampled=list(sampled))
    return replace(found, requests=kept_ones)


@pytest.mark.parametrize(
    ("last", "follows"),
    [
        ([OTHER], True),
        ([OTHER, OTHER], True),
        ([], False),
        # What it asked for itself came, too: one of a crowd of requests may just come before.
        ([OTHER, call("read", 29_950, 5, whose="upstream", waits="recv")], False),
        ([call("recvfrom", 29_900, 10, whose="other", waits="recv", result=0)], False),
        ([call("recvfrom", 29_900, 10, whose="other", waits="recv", result="EAGAIN")], False),
        # It slept again.
        ([OTHER, call("futex", 29_910, 50, waits="lock", asleep=True, result=0)], False),
    ],
)
def test_what_a_reply_follows(last: List[List[object]], follows: bool) -> None:
    assert follows_another_client(request(*last)) is follows


def test_without_calls_nothing_is_known() -> None:
    found = replace(QUEUE, calls=None)
    assert not follows_another_client(found)


def test_consumers_of_a_queue_suffer_from_nobody() -> None:
    found = judged(report([QUEUE] * 20, [QUEUE] * 4)).verdict
    assert found is not None
    assert found.cause == "healthy"
    assert "waiting for what another client sends" in found.summary


def waited_for(*spent_us: float) -> Report:
    """Of the same the waits in the poller, as two clients ended them."""
    ends = [Peer(50 + n, "worker", None) for n in range(len(spent_us))]
    authors = [
        Author("process", peer.pid, None, peer.comm, False, "sleep", None, us)
        for peer, us in zip(ends, spent_us)
    ]
    wait = Wait(4711, 4711, "node", "poll", 900, sum(spent_us), 30_000.0, authors, 0.0, [])
    rows = [ill.connection(peer=peer) for peer in ends]
    return replace(report([QUEUE] * 20, [QUEUE] * 4), waits=[wait], connections=rows)


@pytest.mark.parametrize("thread", ["data-plane-kafk", "kafka-network-t", "node"])
def test_fetches_of_kafka_wait_for_messages(thread: str) -> None:
    """For 500 ms where there are none; a time limit ends them then, as a timer does."""
    timers = report([TIMER] * 8)
    brokers = [replace(ill.thread(user=0.02), comm=thread)]
    found = judged(replace(timers, time=ill.time_of(*brokers))).verdict
    assert found is not None
    assert found.cause == ("app-blocked" if thread == "node" else "healthy")
    assert ("what another client sends" in found.summary) is (thread != "node")


@pytest.mark.parametrize("comms", [["sshd"], ["sshd-session", "sshd"], ["sshd", "nginx"]])
def test_sessions_of_ssh_wait_for_their_commands(comms: List[str]) -> None:
    """A command that runs for two seconds is no illness of the server."""
    timers = report([TIMER] * 8)
    rows = [ill.served_by(4711 + n, 200, comm) for n, comm in enumerate(comms)]
    timers = replace(timers, requests=replace(timers.requests, served_by=rows))
    found = judged(timers).verdict
    assert found is not None
    is_ssh = "nginx" not in comms
    assert found.cause == ("healthy" if is_ssh else "app-blocked")
    assert ("waiting for what its users' commands do" in found.summary) is is_ssh


@pytest.mark.parametrize("comm", ["sshd", "node"])
def test_a_session_of_ssh_owes_no_reply(comm: str) -> None:
    """Its user's command runs."""
    waiting = replace(ill.served_by(4711, 3, comm), unanswered=Waiting(1, 5e6))
    found = ill.service(ill.served(3))
    requests = replace(found.requests, served_by=[waiting])
    verdict = judged(replace(found, requests=requests)).verdict
    assert verdict is not None and verdict.cause == "unknown"
    is_owed = comm != "sshd"
    assert ("1 reply is outstanding" in verdict.summary, bool(verdict.actions)) == (is_owed,) * 2


def test_who_sends_what_is_waited_for_is_named() -> None:
    """A worker that answers by a queue, a replica that confirms: from there it goes on."""
    found = judged(waited_for(9e6, 1e6)).verdict
    assert found is not None and found.cause == "healthy"
    assert "waiting for what another client, worker 50, sends" in found.summary
    assert [each.run for each in found.actions] == ["sudo udsprobe attach --pid 50"]
    assert "worker 50 ends 90 % of the waits" in found.evidence[0].says


def test_of_many_that_send_none_is_named() -> None:
    found = judged(waited_for(3e6, 3e6, 3e6)).verdict
    assert found is not None
    assert "waiting for what another client sends" in found.summary
    assert not found.actions


def test_a_timer_is_a_wait() -> None:
    found = judged(report([TIMER] * 20, [TIMER] * 4)).verdict
    assert found is not None and found.cause == "app-blocked"


@pytest.mark.parametrize(
    ("slowest", "sampled", "share"),
    [
        ([QUEUE] * 20, [], 1.0),
        ([QUEUE] * 19 + [TIMER], [], 0.95),
        # By chance, at a loop with much to do.
        ([QUEUE] * 16 + [TIMER] * 4, [], 0.0),
        # The slowest are of one kind, and most are of another.
        ([QUEUE] * 20, [TIMER] * 4, 0.0),
        # Too few.
        ([QUEUE] * 4, [], 0.0),
        ([], [], 0.0),
    ],
)
def test_nearly_all_have_to_agree(
    slowest: List[WholeRequest], sampled: List[WholeRequest], share: float
) -> None:
    assert share_of_other_clients(report(slowest, sampled), None) == pytest.approx(share)


def test_only_those_of_the_service_count() -> None:
    mixed = report([*[QUEUE] * 10, *[replace(TIMER, pid=5000)] * 10])
    assert share_of_other_clients(mixed, frozenset({QUEUE.pid})) == 1.0
    assert share_of_other_clients(mixed, frozenset({5000})) == 0.0
