"""Requests as the kernel half keeps them, for unit tests: one keyword to change a thing."""

from __future__ import annotations

import json
from typing import Any, List

from tests.unit.samples import BOOT_NS
from udsprobe.sample import KeptRequest


def call(name: str, at_us: int, took_us: int, **changes: Any) -> List[object]:
    """A row of `calls`; asleep for all of it where `asleep=True`."""
    off_ns = took_us * 1000 if changes.get("asleep") else 0
    return [
        *(name, at_us * 1000, took_us * 1000, off_ns, changes.get("runq_us", 0) * 1000),
        changes.get("before_us", 0) * 1000,
        changes.get("transport", "unix" if changes.get("whose") else "other"),
        changes.get("result", 16),
        changes.get("fd"),
        changes.get("whose"),
        changes.get("address"),
        changes.get("waits", "other"),
        False,
        changes.get("inode", 0),
        changes.get("local"),
    ]


def story(**changes: Any) -> str:
    """A request of 30 ms, of which 29.8 were a wait for a lock."""
    written = {
        "unix_us": 1_796_000_001_250_000,
        "pid": 4711,
        "tid": 4712,
        "comm": "worker",
        "transport": "unix",
        "socket_type": "stream",
        "local": "/run/app.sock",
        "peer_address": "",
        "peer_pid": 300,
        "peer_comm": "nginx",
        "turns": 6,
        "inode": 90,
        "peer_inode": 91,
        "flags": ["has_calls"],
        "latency_ns": 30_000_000,
        "accept_wait_ns": None,
        "queued_ns": 0,
        "recv_wait_ns": 50_000,
        "recv_ns": 10_000,
        "app_ns": 29_920_000,
        "last_gap_ns": 29_920_000,
        "send_ns": 20_000,
        "upstream_ns": 0,
        "activity_ns": {"user": 100_000, "runq": 20_000, "blocked_lock": 29_800_000},
        "calls": [
            call("epoll_wait", -5_000, 5_040, waits="poll", asleep=True),
            call("recvfrom", 50, 10, whose="this", fd=7, waits="recv"),
            call("futex", 100, 29_800, waits="lock", asleep=True, result=0),
            call("sendto", 29_980, 20, whose="this", fd=7, waits="send", result=2),
        ],
        "not_kept": 0,
        "not_kept_below_ns": 1_000_000,
        **changes,
    }
    return json.dumps(written)


def kept(at_ms: int, rank: int = 30_000_000, **changes: Any) -> KeptRequest:
    """One that was replied to so long after the first sample of `samples`."""
    is_slow = changes.pop("is_slow", True)
    text = changes.pop("text", None)
    if text is None:
        text = story(latency_ns=rank if is_slow else 1, **changes)
    return KeptRequest(f"{at_ms}-{rank}", BOOT_NS + at_ms * 1_000_000, rank, is_slow, text)
