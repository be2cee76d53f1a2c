"""Pools of connections to an upstream that have none free: requests queue for one of them.

Proxies that limit how much they ask at once (maxconn of HAProxy, pool_size of PgBouncer, Varnish's
one fetch of an object at a time) may do so over more connections than they use at once. They have
no timers of their own in a request: what is not outstanding upstream is in their queue for it.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional

from udsprobe.model.report import Upstream
from udsprobe.rules.accounts.service import Service
from udsprobe.rules.servers import PASS_ON, recognise
from udsprobe.rules.thresholds import ACCOUNTED_FOR_MIN, THREAD_BUSY_MIN

# Where a request waits for a connection that comes free: in the poller, or for a lock.
_QUEUES_IN = ("timer", "lock")
# Their manuals: `maxconn` and `queue`; `default_pool_size` and cl_waiting; the waiting list, where
# requests for one object wait while another fetches it (MAIN.busy_sleep).
_QUEUEING_PROXIES = ("haproxy", "pgbouncer", "varnish")


def full_pool(service: Service) -> Optional[Upstream]:
    """The upstream whose connections are busy nearly always, while more requests are in progress.

    A pool is a server with so many seats: its queue grows without bound as that of a thread.
    """
    full = [row for row in service.upstream if is_full(row)]
    seats = sum(row.connections or 0 for row in full)
    if not full or in_hand(service) <= seats:
        return None
    return max(full, key=lambda row: row.busy_pct or 0.0)


def is_queueing(service: Service) -> bool:
    """A proxy that queues requests by itself, and more are in progress than it asks at once."""
    if recognise(service.name) not in _QUEUEING_PROXIES or not service.upstream:
        return False
    return service.stage_sums_us.get("app", 0.0) > service.upstream_us > 0


def at_once(service: Service) -> float:
    """How many requests are outstanding upstream, on average."""
    return service.upstream_us / 1e6 / service.counted_s if service.counted_s else 0.0


def in_hand(service: Service) -> float:
    """How many requests are in the program, on average, of those that it replied to."""
    app_s = service.stage_sums_us.get("app", 0.0) / 1e6
    return app_s / service.counted_s if service.counted_s else 0.0


def all_in_hand(service: Service) -> float:
    """With those that have no reply: they are there when it replies to others."""
    return max(in_hand(service), service.at_once)


def holds_back(service: Service) -> bool:
    """A proxy that has not asked for most of the requests that it has in hand: a limit of its own
    lets them wait (a rate, a delay, a cache that fetches one of them at a time)."""
    if recognise(service.name) not in PASS_ON or not any(row.count for row in service.upstream):
        return False
    return at_once(service) < (1 - ACCOUNTED_FOR_MIN) * all_in_hand(service)


def is_full(row: Upstream) -> bool:
    """Its connections hardly ever wait for a request."""
    return bool(row.connections) and (row.busy_pct or 0.0) >= 100 * THREAD_BUSY_MIN


def queued_for_pools(service: Service, app: Mapping[str, float]) -> Dict[str, float]:
    """Part of the `app` stages → what of it is a queue for a full pool, µs; empty without one."""
    if full_pool(service) is None and not is_queueing(service):
        return {}
    return {name: app.get(name, 0.0) for name in _QUEUES_IN}
