"""HTTP replies that say that the server failed: whose they are, and who may have made them.

The processes of one name are one program: the workers of nginx, say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from udsprobe.model.report import HttpReplies, Report, ServedBy, Upstream
from udsprobe.model.requests.http_replies import in_one
from udsprobe.rules.servers import DATABASES, recognise
from udsprobe.rules.thresholds import ACCOUNTED_FOR_MIN, FAILS_LATE_TIMES, WAIT_MEAN_US_MIN
from udsprobe.rules.wording import process


@dataclass(frozen=True)
class Program:
    """The processes of one name, what they replied, and whom they ask."""

    rows: Tuple[ServedBy, ...]
    http: HttpReplies
    upstream: Tuple[Upstream, ...]

    @property
    def failing(self) -> List[ServedBy]:
        """Those that replied so, who did most first."""
        rows = [row for row in self.rows if row.http is not None and row.http.failed]
        return sorted(rows, key=lambda row: row.http.failed if row.http else 0, reverse=True)

    @property
    def who(self) -> str:
        """`node 4711`, or the name of several."""
        row = self.failing[0]
        return process(row.pid, row.comm) if len(self.failing) == 1 else row.comm or "the program"

    @property
    def pids(self) -> FrozenSet[int]:
        """Of those that replied so."""
        return frozenset(row.pid for row in self.failing)

    @property
    def count(self) -> int:
        """Replies, failed or not, looked at or not."""
        return sum(row.count for row in self.rows)

    @property
    def fails_late(self) -> bool:
        """Failures come later than other replies: at the end of a wait.

        Where all fail, they come so where most of them take as long: a time limit lets none of
        those go sooner that it ends.
        """
        failed_us = (self.http.failed_mean_us or 0.0) * self.http.failed
        total_us = sum((row.latency_us.mean or 0.0) * row.count for row in self.rows)
        others = self.count - self.http.failed
        if others <= 0:
            return _take_as_long(self.rows)
        mean_us = max(0.0, total_us - failed_us) / others
        return (self.http.failed_mean_us or 0.0) >= FAILS_LATE_TIMES * mean_us

    @property
    def failing_upstream(self) -> Tuple[Upstream, ...]:
        """Those whose failures together are most of its own, most first; else none."""
        failing = sorted(filter(_failed, self.upstream), key=_failed, reverse=True)
        is_theirs = sum(map(_failed, failing)) >= ACCOUNTED_FOR_MIN * self.http.failed
        return tuple(failing) if is_theirs else ()

    @property
    def unseen_upstream(self) -> Optional[Upstream]:
        """Whose answers may be what it passes on, and have no status that is seen: of TLS, say."""
        return next(
            (
                row
                for row in self.upstream
                if row.count >= ACCOUNTED_FOR_MIN * self.count
                and (row.http is None or row.http.count < ACCOUNTED_FOR_MIN * row.count)
                and not _is_database(row)
            ),
            None,
        )


def programs(report: Report) -> List[Program]:
    """Those whose replies are looked at."""
    by_name: Dict[Optional[str], List[ServedBy]] = {}
    for row in report.requests.served_by or ():
        by_name.setdefault(row.comm, []).append(row)
    found = []
    for rows in by_name.values():
        http = in_one(row.http for row in rows)
        if http is not None:
            found.append(Program(tuple(rows), http, _asked(report, rows)))
    return found


def _take_as_long(rows: Sequence[ServedBy]) -> bool:
    """Half of their requests take what programs can set a limit to, and half of the mean or more.

    Where percentiles were not counted, the mean tells.
    """
    count = sum(row.count for row in rows)
    mean_us = sum((row.latency_us.mean or 0.0) * row.count for row in rows) / max(1, count)
    usual_us = max(WAIT_MEAN_US_MIN, mean_us / 2)
    long = sum(row.count for row in rows if (row.latency_us.p50 or mean_us) >= usual_us)
    return 2 * long >= count


def _asked(report: Report, rows: Sequence[ServedBy]) -> Tuple[Upstream, ...]:
    places = {(own.transport, own.address) for row in rows for own in row.upstream}
    asked = report.requests.upstream or ()
    return tuple(row for row in asked if (row.transport, row.address) in places or not row.count)


def _failed(row: Upstream) -> int:
    return row.http.failed if row.http is not None else 0


def _is_database(row: Upstream) -> bool:
    comm = row.peer.comm if row.peer is not None else None
    return bool(comm) and recognise(comm or "") in DATABASES
