"""Connections that a service keeps open, request after request."""

from __future__ import annotations

from typing import List

from udsprobe.model.report import Connection, Listener, Report
from udsprobe.model.requests.hops import ANY_HOST


def served_at(report: Report, listener: Listener) -> List[Connection]:
    """Connections accepted there that were served in the window, of those listed."""
    return [row for row in report.connections or [] if _is_served_at(row, listener)]


def keep_others_out(report: Report, listener: Listener) -> bool:
    """No connection was accepted in all of the window, while replies on others ended.

    A program that had room for one more connection would have taken it between two replies,
    however slow these are.
    """
    if listener.accepted != 0 or _came_before(listener) < 1:
        return False
    rows = served_at(report, listener)
    return sum(row.requests or 0 for row in rows) > len(rows)


def _came_before(listener: Listener) -> int:
    """Of the connections in its queue, those that came before the window began, at least."""
    return (listener.depth.now or 0) - (listener.established or 0)


def _is_served_at(row: Connection, listener: Listener) -> bool:
    if row.role != "served" or not row.requests or row.transport != listener.transport:
        return False
    host, _, port = listener.address.rpartition(":")
    if row.transport == "tcp" and host in ANY_HOST:
        return row.local.rpartition(":")[2] == port
    return row.local == listener.address
