"""What the other threads of a process did while one of them waited for a lock.

A lock has an owner among the threads of the process; where a process has but one thread, the owner
is in another process of the service, and the lock in memory that they share. Where owners
compute, the wait is the service's own work: an interpreter's lock, a garbage collector that stops
the others, a thread that is handed each request. Where they sleep as well, the wait stays a wait.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from udsprobe.model.report import ThreadTime
from udsprobe.rules.accounts.authors import busy_authors, until_timers
from udsprobe.rules.accounts.service import Service, in_virtual_threads, serving_threads

# What a thread that owns a lock can be busy with, by the part of request time that it is.
_BUSY_WITH = {
    "cpu": ("user", "sys_other"),
    "transport": ("sys_socket", "sys_poll"),
    "runq": ("runq",),
}
# What requests sleep for: whoever sleeps so may own the lock meanwhile.
_ASLEEP_FOR = ("sleep", "disk", "upstream", "send")
_US_PER_S = 1e6


def behind_locks(service: Service, app: Mapping[str, float]) -> Dict[str, float]:
    """The part of the waits for locks in which other threads were busy, µs by what with.

    A wait is divided by what its process did meanwhile: by the busy time of all threads but the
    one that waits, out of the time in which that one did not run. Requests that sleep may own
    the lock as well, and have their share of it. Where it is known who ended these waits, what
    those did counts instead. What a time limit ends is no wait for an owner.

    Args:
        app: parts of the `app` stages, µs, all requests together.
    """
    lock_us = app.get("lock", 0.0)
    if lock_us <= 0:
        return {}
    # Who ends the waits of threads that carry virtual ones brings them work.
    known = None if in_virtual_threads(service) else busy_authors(service, lock_us)
    shares = known or busy_shares(service, app)
    lock_us *= 1 - until_timers(service, lock_us)
    return {name: lock_us * share for name, share in shares.items()}


def busy_shares(service: Service, app: Mapping[str, float]) -> Dict[str, float]:
    """The part of any moment in which threads are busy for one that waits, by what with."""
    waiting = [t for t in serving_threads(service) if t.share.get("blocked_lock", 0.0) > 0]
    processes = _crews(service, waiting)
    others_us = {
        name: max(0.0, service.spent_us(*activities) - processes * _own_us(waiting, activities))
        for name, activities in _BUSY_WITH.items()
    }
    every = tuple(name for activities in _BUSY_WITH.values() for name in activities)
    there_us = processes * (service.duration_s * _US_PER_S - _own_us(waiting, every))
    asleep_us = sum(app.get(name, 0.0) for name in _ASLEEP_FOR)
    whole_us = max(there_us, sum(others_us.values()) + asleep_us)
    return {name: us / whole_us for name, us in others_us.items()} if whole_us > 0 else {}


def _crews(service: Service, waiting: List[ThreadTime]) -> int:
    """How many groups of threads have locks of their own: processes, or those of one thread."""
    many = {process.pid for process in service.processes if process.threads > 1}
    crews = {t.pid if t.pid in many else 0 for t in waiting}
    return max(1, len(crews))


def _own_us(waiting: List[ThreadTime], activities: Tuple[str, ...]) -> float:
    """What the thread that waits did itself, on average over the time waited."""
    weights = [t.share.get("blocked_lock", 0.0) * t.observed_s for t in waiting]
    own_s = [sum(t.share.get(name, 0.0) for name in activities) * t.observed_s for t in waiting]
    whole = sum(weights)
    mean_s = sum(w * s for w, s in zip(weights, own_s)) / whole if whole else 0.0
    return mean_s * _US_PER_S
