"""The columns of every table: title, width, and one sentence for the reader.

The same words serve the dashboard, `--plain`, the help page and
`docs/screen.md`. A column that shows one figure of a row says how, and needs no other place than
this one: `cells` have it, and tables show it where there is room. Knows no screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from udsprobe.views.fields import numbers


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        width: terminal cells; the fewest of a column that grows.
        right: right-aligned, as numbers are.
        grows_to: cells it may take when room is left.
        says: what it shows, in one sentence.
        cell: from a row of the report to its text; None where that takes more than the row.
    """

    key: str
    title: str
    width: int
    says: str
    right: bool = True
    grows_to: int = 0
    cell: Optional[Callable[[Any], str]] = None


_ANY = 1000
"""Grows to whatever room is left."""


def _by_key(*columns: Column) -> Dict[str, Column]:
    return {column.key: column for column in columns}


SYSCALLS = _by_key(
    Column(
        "name",
        "system call",
        14,
        "The kernel's name for the call; /32 marks calls of 32-bit programs.",
        right=False,
    ),
    Column(
        "socket",
        "socket",
        10,
        "What its file descriptor was: unix (stream), unix/seq (seqpacket), unix/dgram, tcp, udp, "
        "or other for anything else (pipe, file, epoll).",
        right=False,
    ),
    Column("calls", "calls", 9, "Calls that returned since the start, failed ones included."),
    Column("calls_per_s", "calls/s", 7, "Calls that returned, per second."),
    Column("errors_per_s", "err/s", 6, "Calls that failed, per second; EAGAIN counts."),
    Column("p50", "p50", 6, "50 % of the calls took at most this long, from entry to return."),
    Column("p90", "p90", 6, "90 % of the calls took at most this long."),
    Column("p99", "p99", 6, "99 % of the calls took at most this long."),
    Column("p999", "p999", 6, "99.9 % of the calls took at most this long."),
    Column("max", "max", 6, "The longest call."),
    Column("mean", "mean", 6, "The mean duration of a call."),
    Column("cpu", "cpu%", 5, "CPU time inside these calls, in percent of one CPU."),
    Column("now", "now", 4, "Threads inside this call at this moment, asleep or not."),
    Column("bytes", "bytes", 7, "Bytes moved since the start."),
    Column("bytes_per_s", "bytes/s", 7, "Bytes moved, per second."),
    Column("slow", "slow%", 6, "Share of the time that was spent in calls of 1 ms or longer."),
    Column(
        "errors",
        "errors since the start",
        22,
        "Failed calls since the start, by errno.",
        right=False,
        grows_to=_ANY,
    ),
)

LISTENERS = _by_key(
    Column("socket", "socket", 8, "Transport and type of the listening socket.", right=False),
    Column(
        "address",
        "address",
        12,
        "Path, @abstract name or host:port it listens on.",
        right=False,
        grows_to=44,
    ),
    Column(
        "bar",
        "accept queue",
        12,
        "Connections not accepted yet: the filled part is now, ╎ the maximum, "
        "the right end the limit.",
        right=False,
        grows_to=36,
    ),
    Column(
        "now",
        "now",
        5,
        "Connections in the accept queue at this moment.",
        cell=lambda row: numbers.count(row.depth.now, 5),
    ),
    Column(
        "max",
        "max",
        5,
        "The most connections seen in the queue at once.",
        cell=lambda row: numbers.count(row.depth.max, 5),
    ),
    Column(
        "limit",
        "limit",
        5,
        "The queue is full at this many connections: the backlog plus one.",
        cell=lambda row: numbers.count(row.depth.limit, 5),
    ),
    Column("wait", "wait p99", 8, "99 in 100 of those accepted waited at most this long for it."),
    Column(
        "state",
        "state",
        7,
        "The worst of FULL (at its limit now), REFUSED, BLOCKED, DROPPED (new clients, since "
        "the start) and CLOSED.",
        right=False,
    ),
    Column(
        "backlog",
        "backlog",
        14,
        "The backlog in force; =somaxconn when it equals net.core.somaxconn, its upper bound.",
        right=False,
    ),
    Column(
        "history",
        "high-water history",
        20,
        "The most connections in the queue in each interval, the newest at the right; the top is "
        "the limit.",
        right=False,
        grows_to=60,
    ),
    Column(
        "trouble",
        "refused, blocked",
        40,
        "Connections REFUSED by errno, clients BLOCKED in connect() now and before, TCP "
        "connections DROPPED, since the start; on narrow screens on a line below.",
        right=False,
        grows_to=60,
    ),
    Column("owners", "owners", 14, "Processes that hold it open.", right=False, grows_to=_ANY),
)

TARGETS = _by_key(
    Column("pid", "pid", 7, "Process ID (PID)."),
    Column("comm", "process", 15, "The process name (comm).", right=False),
    Column("state", "state", 7, "Running or exited.", right=False),
    Column(
        "via",
        "via",
        8,
        "How it became a target: matched by a selector, or a child of a target.",
        right=False,
    ),
    Column("threads", "threads", 7, "The number of its threads."),
    Column("bar", "open files", 12, "Open file descriptors against the limit.", right=False),
    Column("fds", "fds", 6, "File descriptors open."),
    Column("fds_limit", "limit", 8, "File descriptors it may open (RLIMIT_NOFILE)."),
    Column("fds_pct", "used%", 6, "File descriptors open, in percent of the limit."),
    Column("full_in", "full in", 10, "When all are in use, at the rate at which they grow now."),
    Column(
        "exhausted",
        "refused",
        10,
        "Calls that failed for want of a file descriptor since the start, by errno.",
    ),
    Column(
        "cmdline",
        "command line",
        16,
        "How it was started; [exited] before it when it is gone.",
        right=False,
        grows_to=_ANY,
    ),
)


FINDINGS = _by_key(
    Column("severity", "severity", 8, "The severity: critical, warning or info.", right=False),
    Column("id", "finding", 18, "Its name, a cause of docs/verdicts.md.", right=False),
    Column(
        "subject",
        "about",
        20,
        "The listener, peer, thread or destination it is about.",
        right=False,
        grows_to=34,
    ),
    Column("summary", "says", 24, "What was found, in one clause.", right=False, grows_to=_ANY),
)

CONNECTIONS = _by_key(
    Column("socket", "socket", 6, "Transport of the connection.", right=False),
    Column("local", "local", 14, "The target's own address.", right=False, grows_to=30),
    Column("peer", "peer", 14, "Process or address at the other end.", right=False, grows_to=30),
    Column(
        "role", "role", 8, "Whether the target serves requests on it or sends them.", right=False
    ),
    Column("requests", "requests", 9, "Requests on it since the start."),
    Column("bytes_in", "in", 6, "Bytes received since the start."),
    Column("bytes_out", "out", 6, "Bytes sent since the start."),
    Column(
        "bar",
        "send queue",
        10,
        "Bytes sent that the peer has not taken: the filled part is now, ╎ the maximum, the "
        "right end the buffer.",
        right=False,
        grows_to=16,
    ),
    Column("queued", "unsent", 6, "Bytes in the send queue at this moment."),
    Column("most", "max", 6, "The most bytes in the send queue since the start."),
    Column("buffer", "buffer", 6, "The send buffer's limit, overhead included."),
    Column("received", "unread", 6, "Bytes the target has not received yet."),
    Column("unread_most", "max", 6, "The most bytes it had not received since the start."),
    Column(
        "state",
        "state",
        26,
        "STALLED while the peer takes nothing; since the start, sends that slept (BLOCKED), "
        "found no room (EAGAIN) or left bytes waiting for an acknowledgement (NAGLE).",
        right=False,
        grows_to=_ANY,
    ),
)


def figures(columns: Dict[str, Column], row: object) -> Dict[str, str]:
    """The cells of a row that its columns know by themselves."""
    return {key: column.cell(row) for key, column in columns.items() if column.cell is not None}


def extras(columns: Dict[str, Column], base: Sequence[str], *first: str) -> Tuple[str, ...]:
    """`first`, then the columns that know their cell and stand in neither list."""
    named = {*base, *first}
    return (*first, *(key for key, each in columns.items() if each.cell and key not in named))


def pick(
    columns: Dict[str, Column], base: Sequence[str], extra: Sequence[str], width: int, gap: int
) -> List[Column]:
    """`base`, and of `extra` as many as fit into `width`; all in the table's own order.

    Args:
        base: the most important first: where they do not all fit, the last are left out.
    """
    kept = list(base)
    while len(kept) > 1 and _total([columns[name] for name in kept], gap) > width:
        kept.pop()
    chosen = set(kept)
    if len(kept) < len(base):
        extra = ()
    for key in extra:
        if _total([columns[name] for name in (*chosen, key)], gap) <= width:
            chosen.add(key)
    return [column for key, column in columns.items() if key in chosen]


def widths(columns: Sequence[Column], width: int, gap: int) -> Dict[str, int]:
    """Width of each column by its key; those that grow share the room that is left, in order."""
    spare = max(0, width - _total(columns, gap))
    room = {}
    for column in columns:
        grown = min(spare, max(0, column.grows_to - column.width))
        room[column.key] = column.width + grown
        spare -= grown
    return room


def _total(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * max(0, len(columns) - 1)
