"""Requests whose reply follows what another client of the server sent.

A consumer of a blocking queue, a long poll, a member of a chat: until somebody else sends
something, there is nothing to reply. The wait is of no server's making.
"""

from __future__ import annotations

from collections import Counter
from typing import FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from udsprobe.model.report import Report, Wait, WholeRequest
from udsprobe.rules.servers import carries_sessions
from udsprobe.rules.thresholds import AUTHOR_SHARE_MIN, OTHERS_SHARE_MIN, SLOW_REQUESTS_MIN
from udsprobe.rules.wording import process

# SocketServer and KafkaRequestHandlerPool name the threads that serve, with and without the prefix.
_OF_KAFKA = ("data-plane-kafk", "kafka-network-t", "kafka-request-h")


def is_kafka(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """One of these processes, None: of all targets, is a broker of Kafka.

    What a request waits for in there is for others: a fetch for messages (fetch.max.wait.ms, 500 ms
    without any), a member of a group for the others, a message for the replicas that confirm it.
    Which of its requests are so, nothing tells that they say first.
    """
    threads = report.time.threads if report.time is not None else ()
    return any(
        each.comm.startswith(_OF_KAFKA) for each in threads if pids is None or each.pid in pids
    )


def is_ssh(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """Those of these processes that serve, None: of all targets, serve users of SSH, who wait for
    what their commands do, or think.

    How long a login took nobody can tell from that.
    """
    rows = (row for row in report.requests.served_by or () if pids is None or row.pid in pids)
    comms = {row.comm for row in rows if row.count and row.comm}
    return bool(comms) and all(map(carries_sessions, comms))


def waits_for_others(report: Report, pids: Optional[FrozenSet[int]]) -> bool:
    """By what it is, all that such a server waits for in a poller is of others' making."""
    return is_kafka(report, pids) or is_ssh(report, pids)


def share_of_other_clients(report: Report, pids: Optional[FrozenSet[int]]) -> float:
    """The part of the waits in a poller that a message of another client ended, of 1.

    By the requests that were kept whole: the slowest, and those taken by chance, which are to say
    the same. Who polls for many clients also happens to receive from one just before it replies to
    another, the more often the busier it is: 0 unless nearly all of that time is of such requests.

    Args:
        pids: of the service; None for all targets.
    """
    if waits_for_others(report, pids):
        return 1.0
    slowest = _waited(report.requests.slowest, pids)
    sampled = _waited(report.requests.sampled, pids)
    if len(slowest) + len(sampled) < SLOW_REQUESTS_MIN:
        return 0.0
    least = min(_ended_by_others(each) for each in (slowest, sampled) if each)
    return least if least >= OTHERS_SHARE_MIN else 0.0


class Sender(NamedTuple):
    """The client whose messages end most of the waits in a poller; `share` of them, of 1."""

    pid: int
    comm: str
    share: float

    @property
    def who(self) -> str:
        """`python 4711`."""
        return process(self.pid, self.comm)


def who_sends(waits: Sequence[Wait], clients: FrozenSet[Tuple[int, int]]) -> Optional[Sender]:
    """Which client that is; None where none stands out: a worker that replies to a queue, a
    replica that confirms.

    Args:
        waits: of the threads of a service. clients: as in `Service`.
    """
    spent: Counter[Tuple[int, str]] = Counter()
    for row in waits:
        for each in row.authors if row.kind == "poll" else ():
            if each.pid and each.comm and (row.pid, each.pid) in clients:
                spent[each.pid, each.comm] += round(each.total_us)
    if not spent:
        return None
    (pid, comm), most_us = spent.most_common(1)[0]
    share = most_us / max(1, sum(spent.values()))
    return Sender(pid, comm, share) if share >= AUTHOR_SHARE_MIN else None


def follows_another_client(request: WholeRequest) -> bool:
    """Its thread last slept until another client's bytes came, and replied when it had them."""
    received = set()
    for call in reversed(request.calls or ()):
        if call.asleep_us > 0:
            break
        if call.waits_for == "recv" and (call.result or 0) > 0:
            received.add(call.whose)
    return received == {"other"}


def _waited(
    kept: Optional[Sequence[WholeRequest]], pids: Optional[FrozenSet[int]]
) -> List[WholeRequest]:
    rows = [each for each in kept or () if pids is None or each.pid in pids]
    return [each for each in rows if each.parts_us.get("poll", 0.0) > 0]


def _ended_by_others(waited: Sequence[WholeRequest]) -> float:
    whole_us = sum(each.parts_us["poll"] for each in waited)
    ended_us = sum(each.parts_us["poll"] for each in waited if follows_another_client(each))
    return ended_us / whole_us
