"""Knobs of cases: what can be changed in one, and the cause that a change takes away. Pure.

A case's knobs are the parameters of its function after the bench; their defaults are its illness.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping, Tuple

# A knob's name: what it is a cure for, and its value in a case that is well.
KNOBS: Dict[str, Tuple[str, Any]] = {
    "backlog": ("accept-queue-full", 511),
    "accept_pause_ms": ("accept-starved", 0),
    "seats": ("accept-starved", 64),
    "deadlock_after": ("accept-starved", -1),
    "tasks": ("accept-starved", 4096),
    "silent_clients": ("accept-starved", 0),
    "stopped": ("accept-starved", False),
    "max_requests": ("accept-starved", 0),
    "upstream_gone": ("connect-failing", False),
    "forbidden": ("connect-failing", False),
    "nofile": ("fd-limit", 4096),
    "leak": ("fd-limit", False),
    "read_rate": ("send-blocked", 0),
    "slice_ms": ("send-blocked", 0),
    "stop_after": ("send-blocked", 0),
    "log_rate": ("send-blocked", 100_000),
    "reconnect": ("connection-churn", 0),
    "keepalive": ("connection-churn", True),
    "spin_ms": ("app-cpu", 0),
    "lock_spin_ms": ("app-cpu", 0),
    "heap_mb": ("app-cpu", 1),
    "endless_after": ("app-cpu", 1_000_000_000),
    "spin_rounds": ("app-cpu", 1),
    "hang_after": ("app-blocked", 1_000_000_000),
    "upstream_hangs_after": ("upstream-wait", 1_000_000_000),
    "sleep_ms": ("app-blocked", 0),
    "forgets": ("app-blocked", False),
    "drops": ("app-blocked", False),
    "waits_in_vain": ("app-blocked", False),
    "limited": ("app-blocked", False),
    "fails": ("app-failing", False),
    "crash_at": ("app-failing", 0),
    "upstream_drops": ("upstream-wait", False),
    "upstream_forgets": ("upstream-wait", False),
    "held": ("app-blocked", False),
    "traced": ("app-blocked", False),
    "looks_up": ("upstream-wait", False),
    "pipe_rate": ("app-blocked", 100_000),
    "blocks": ("upstream-wait", False),
    "pool": ("upstream-wait", 64),
    "asks": ("upstream-wait", 1),
    "upstream_ms": ("upstream-wait", 0),
    "upstream_rounds": ("upstream-wait", 1),
    "burners_per_cpu": ("cpu-contention", 0),
    "own_burners": ("cpu-contention", 0),
    "backends": ("cpu-contention", 1),
    "cpu_pct": ("cpu-contention", 400),
    "pinned": ("cpu-contention", False),
    "session_nice": ("cpu-contention", 0),
    "bytes_each": ("transport", 1024),
    "piece_bytes": ("transport", 8192),
    "nodelay": ("transport", True),
}

Change = Mapping[str, Any]


def knobs_of(function: Callable[..., Any]) -> Dict[str, Any]:
    """The knobs of a case's function, with the values that make it ill.

    Raises:
        KeyError: a parameter that no cause knows.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for parameter in parameters:
        KNOBS[parameter.name]
    return {parameter.name: parameter.default for parameter in parameters}


def cures_of(function: Callable[..., Any]) -> Dict[str, Change]:
    """By cause: the changed parameters that take it away."""
    cures: Dict[str, Change] = {}
    for name, ill in knobs_of(function).items():
        cause, well = KNOBS[name]
        if ill != well:
            cures[cause] = {**cures.get(cause, {}), name: well}
    return cures
