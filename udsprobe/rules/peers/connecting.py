"""TCP connects whose first packet nobody answers.

On one host the kernel answers a SYN at once, with a connection or a refusal, unless the accept
queue is full: then it drops it (tcp_conn_request in net/ipv4/tcp_input.c), and the client sends it
again after a second.
"""

from __future__ import annotations

from typing import Optional

from udsprobe.model.report import Connect, Peer, Report

_THIS_HOST = ("127.", "[::1]", "[::ffff:127.")
# The program gave up, or the kernel did.
NO_ANSWER = ("ECANCELED", "ETIMEDOUT")


def is_of_this_host(address: str) -> bool:
    """A TCP address of the loopback interface; of others it is not known whose they are."""
    return address.startswith(_THIS_HOST)


def owner_of(row: Connect, report: Report) -> Optional[Peer]:
    """Who answers at the address that a target connects to."""
    peers = [
        each.peer
        for each in report.requests.upstream or []
        if (each.transport, each.address) == (row.transport, row.address)
    ]
    peers += [
        each.peer
        for each in report.connections or []
        if each.peer is not None
        and (each.transport, each.peer.address or each.local) == (row.transport, row.address)
    ]
    return next((each for each in peers if each is not None and each.pid), None)


def never_answered(row: Connect, report: Report) -> int:
    """Connects to a listener on this host that ended before it took them."""
    if not _is_tcp_of_this_host(row, report):
        return 0
    return sum(row.failed_in_background.get(error, 0) for error in NO_ANSWER)


def answered_late(row: Connect, report: Report) -> int:
    """Connects to a listener on this host that it took when their SYN was sent again."""
    late = row.connected_later_us
    return late.count if late is not None and _is_tcp_of_this_host(row, report) else 0


def late_us(row: Connect) -> float:
    """How long those took that connected in the background, on average."""
    late = row.connected_later_us
    return (late.mean if late is not None else None) or 0.0


def connecting_us(row: Connect) -> float:
    """What connects in the background took until they connected, all together."""
    late = row.connected_later_us
    return late.count * (late.mean or 0.0) if late is not None else 0.0


def _is_tcp_of_this_host(row: Connect, report: Report) -> bool:
    if row.transport != "tcp":
        return False
    return is_of_this_host(row.address) or owner_of(row, report) is not None
