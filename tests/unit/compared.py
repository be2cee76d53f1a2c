"""Report documents with known stages, for the tests of comparisons."""

from __future__ import annotations

import copy
import random
from typing import Any, Dict, List, Mapping, Optional

from tests.unit import reports
from udsprobe.compare import Run, run_of
from udsprobe.views.documents.report_document import document

Document = Dict[str, Any]

STAGES = {"recv_wait": 5.0, "recv": 3.0, "app": 20.0, "send": 12.0}
CALLS = {"read": 1.0, "write": 1.0, "epoll_wait": 1.0}
ACTIVITIES = {"user": 0.3, "sys_socket": 0.1, "sys_poll": 0.05, "sys_other": 0.05, "runq": 0.0}


def latency(count: int, mean: Optional[float], scale: float = 1.0) -> Document:
    """Percentiles at fixed multiples of the mean."""
    names = ("p50", "p90", "p99", "p999", "max")
    if not count or mean is None:
        return {"count": 0, "mean": None, **dict.fromkeys(names)}
    parts = dict(zip(names, (0.9, 1.2, 2.0, 4.0, 8.0)))
    return {"count": count, "mean": mean, **{k: mean * v * scale for k, v in parts.items()}}


def made(
    requests: int = 10_000,
    stages: Mapping[str, float] = STAGES,
    calls: Mapping[str, float] = CALLS,
    duration_s: float = 1.0,
    runq: float = 0.0,
    before_accept: float = 0.0,
) -> Document:
    """One window in which the mean request spent `stages` µs."""
    found = copy.deepcopy(document(reports.busy()))
    found["window"]["duration_s"] = duration_s
    found["time"] = {
        "threads": [],
        "processes": [],
        "busiest": None,
        "total_s": duration_s * 2,
        "total": {**ACTIVITIES, "runq": runq},
    }
    found["requests"]["served"] = {
        "count": requests,
        "rate_per_s": requests / duration_s,
        "latency_us": latency(requests, sum(stages.values()) + before_accept),
        "stages_us": {
            "accept_wait": latency(1 if requests else 0, 40.0),
            **{name: latency(requests, mean) for name, mean in stages.items()},
        },
        "app_time_pct": None,
        "turn_based": True,
    }
    found["requests"]["served_by"] = []
    per_request = {"total": sum(calls.values()), "by_syscall": dict(calls)}
    found["requests"]["syscalls_per_request"] = per_request if requests else None
    found["listeners"], found["connections"] = [], []
    found["syscalls"] = [_row(requests * 200)]
    return found


def _row(moved: int) -> Document:
    return {"name": "read", "transport": "unix", "bytes": moved}


def doing(found: Document, **shares: float) -> Document:
    """The document with what the targets did in the stage app, in %."""
    requests = copy.deepcopy(found["requests"])
    requests["served"]["app_time_pct"] = shares
    return {**found, "requests": requests}


def slower(found: Document, times: float) -> Document:
    """The document with requests that take so many times as long."""
    served = found["requests"]["served"]
    stages = {
        name: times * latency["mean"]
        for name, latency in served["stages_us"].items()
        if name in STAGES and latency["mean"] is not None
    }
    return made(served["count"], stages, duration_s=found["window"]["duration_s"])


def listening(found: Document, transport: str, address: str, accepted: int = 1) -> Document:
    """The document with a listener that accepted."""
    row = {"transport": transport, "address": address, "accepted": accepted}
    return {**found, "listeners": [row]}


def scattered(
    seed: int,
    count: int = 20,
    stages: Mapping[str, float] = STAGES,
    scatter: float = 0.03,
    drift: float = 0.7,
    **options: Any,
) -> List[Document]:
    """Intervals that scatter and resemble the one before (an AR(1) process)."""
    chance, state, found = random.Random(seed), 0.0, []
    for _ in range(count):
        state = drift * state + chance.gauss(0, scatter)
        factor = 1 + state
        requests = int(10_000 / factor)
        slowed = {name: mean * factor for name, mean in stages.items()}
        found.append(made(requests, slowed, **options))
    return found


def run(documents: List[Document], name: str = "run") -> Run:
    """They, as one run."""
    return run_of(name, documents)
