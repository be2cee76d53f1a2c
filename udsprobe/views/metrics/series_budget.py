"""How many listeners, destinations, processes … have series of their own.

Who has a place keeps it: if one moved from `other` to a place of its own, the counters of
`other` would fall. The rest share `other`.
"""

from __future__ import annotations

from typing import Dict, Mapping, Set, Tuple

from udsprobe.views.metrics import catalogue as c
from udsprobe.views.metrics.catalogue import Metric

Key = Tuple[str, ...]
OTHER = "other"

RESERVED_SERIES = 600
"""For what there is one of, whatever the targets do: requests, threads, udsprobe itself."""

MAX_SERIES_DEFAULT = 5_000
MAX_SERIES_LEAST = 1_000

SHARES_PCT: Mapping[str, int] = {
    "syscalls": 33,
    "listeners": 30,
    "upstream": 10,
    "connects": 10,
    "targets": 8,
    "connections": 4,
    "netns": 3,
    "cgroups": 2,
}
"""Kind → its part of the series that are not reserved."""

_METRICS: Mapping[str, Tuple[Metric, ...]] = {
    "syscalls": (
        *(c.CALLS, c.CALL_ERRORS, c.CALL_BYTES, c.CALL_CPU, c.CALL_SLOW),
        *(c.CALL_DURATION, c.CALLS_IN_FLIGHT),
    ),
    "listeners": (
        *(c.QUEUE_DEPTH, c.QUEUE_PEAK, c.QUEUE_PEAK_EVER, c.QUEUE_LIMIT, c.QUEUE_FILL, c.QUEUES),
        *(c.ESTABLISHED, c.ACCEPTED, c.ACCEPT_WAIT, c.BLOCKED_CONNECT, c.BLOCKED_NOW, c.REFUSED),
        *(c.DROPS, c.SYN_QUEUE),
    ),
    "upstream": (
        *(c.UPSTREAM_DURATION, c.UPSTREAM_OPENED),
        *(c.UPSTREAM_UNANSWERED,) * 2,  # by the upstream, by the target
        *(c.UPSTREAM_HTTP_REPLIES,) * 2,  # failed, answered
    ),
    "connects": (c.CONNECT_DURATION,),
    "targets": (
        *(c.TARGET_INFO, c.TARGET_THREADS, c.TARGET_FDS, c.TARGET_FDS_LIMIT),
        *(c.TARGET_FDS_REFUSED,) * 2,  # EMFILE, ENFILE
    ),
    "connections": (c.RECEIVE_QUEUE, c.SEND_QUEUE),
    "netns": (c.SOMAXCONN, c.OVERFLOWS, c.LISTEN_DROPS, c.COOKIES_SENT),
    "cgroups": (
        *(c.CPU_QUOTA, c.CPU_PERIODS, c.CPU_THROTTLED_PERIODS, c.CPU_THROTTLED, c.CPU_USAGE),
    ),
}


class Places:
    """The places of one kind.

    Args:
        limit: series it may have, `other` included.
        cost: series of one place.
    """

    def __init__(self, limit: int, cost: int) -> None:
        self._left = limit - cost
        self._cost = cost
        self._admitted: Set[Key] = set()
        self._folded: Set[Key] = set()

    def of(self, key: Key) -> Key:
        """`key`, or as many times `other`."""
        if self._has(key, self._cost):
            return key
        self._folded.add(key)
        return (OTHER,) * len(key)

    def detail(self, key: Key, detail: str) -> str:
        """One more value, such as an errno, at a place: itself, or `other`."""
        return detail if self._has((*key, detail), 1) else OTHER

    def take_folded(self) -> int:
        """How many were sent to `other` since the last call."""
        count = len(self._folded)
        self._folded.clear()
        return count

    def _has(self, key: Key, cost: int) -> bool:
        if key in self._admitted:
            return True
        if cost > self._left:
            return False
        self._left -= cost
        self._admitted.add(key)
        return True


def places(max_series: int) -> Dict[str, Places]:
    """Places by kind, `max_series` in all."""
    free = max_series - RESERVED_SERIES
    return {
        kind: Places(free * share // 100, sum(metric.series for metric in _METRICS[kind]))
        for kind, share in SHARES_PCT.items()
    }
