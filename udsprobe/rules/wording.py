"""Numbers and clauses for sentences that humans read."""

from __future__ import annotations

from typing import Optional, Union

from udsprobe.model.report import Connect, Evidence, Listener, Upstream

ACTIVITY_WORDS = {
    "user": "running its own code",
    "sys_socket": "in socket system calls",
    "sys_poll": "in poller calls",
    "sys_other": "in other system calls",
    "runq": "ready to run, waiting for a CPU",
    "blocked_poll": "asleep in its poller",
    "blocked_recv": "asleep in a receive call",
    "blocked_send": "asleep in a send call",
    "blocked_accept": "asleep in accept()",
    "blocked_connect": "asleep in connect()",
    "blocked_lock": "waiting for a lock",
    "blocked_disk": "waiting for the disk",
    "blocked_other": "asleep elsewhere (sleep, pipe, child process, stopped)",
}
# What a program sleeps on that says itself for how long.
OWN_TIMER = "a timer ("
# What goroutines wait for, as far as the kernel sees.
IN_GO = "a timer, a lock or a channel"
IN_VIRTUAL = "each other, a lock or a time"
IN_POLLER = "a timer, or an event in its poller"
# Of a proxy whose requests wait while it has not asked its upstream for them.
HOLDS_BACK = "holds requests back itself"


def percent(share: float) -> str:
    """A part of 1 as `3.9 %`, `97 %`, `< 0.1 %`."""
    value = share * 100
    if 0 < value < 0.1:
        return "< 0.1 %"
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def at_most(share: float) -> str:
    """`at most 62 %`, `less than 0.1 %`."""
    return "less than 0.1 %" if 0 < share < 0.001 else f"at most {percent(share)}"


def part(share: float) -> str:
    """Like `percent`; never 100 % of what is not all."""
    value = share * 100
    if 99 <= value < 100:
        return f"{min(99.9, int(value * 10) / 10):g} %"
    return percent(share)


def duration(value_us: float) -> str:
    """µs as `41 µs`, `2.3 ms`, `1.5 s`."""
    for limit, unit in ((1e3, "µs"), (1e6, "ms")):
        if value_us < limit:
            return f"{_three_digits(value_us / limit * 1e3)} {unit}"
    return f"{_three_digits(value_us / 1e6)} s"


def count(number: int, one: str, many: Optional[str] = None) -> str:
    """`1 connection`, `2,000 connections`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def process(pid: Optional[int], comm: Optional[str]) -> str:
    """`node 4711`; `pid 4711` where the name is not known."""
    return f"{comm.rstrip()} {pid}" if comm else f"pid {pid}"


def place(row: Union[Connect, Listener, Upstream]) -> str:
    """`unix:/run/app.sock`."""
    return f"{row.transport}:{row.address}"


def is_name_server(where: str) -> bool:
    """Of the `place` of an upstream: of what goes by UDP only questions for names are requests."""
    return where.startswith("udp:")


def named_place(where: str) -> str:
    """`the name server udp:127.0.0.53:53`; of any other `place` itself."""
    return f"the name server {where}" if is_name_server(where) else where


def evidence(
    metric: str, value: float, unit: str, says: str, threshold: Optional[float] = None
) -> Evidence:
    """One fact, rounded to what it is worth."""
    return Evidence(metric, round(value, 4), unit, threshold, says)


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.1f}".rstrip("0").rstrip(".") if value < 99.95 else f"{value:.0f}"
