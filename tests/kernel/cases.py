"""Which workload runs over which transports, and how its own account is read."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Counter as CounterOf
from typing import Dict, List, NamedTuple, Optional, Tuple

STREAMS = ("unix-stream", "tcp4")
TRANSFERS = ("unix-stream", "unix-seqpacket", "unix-dgram", "tcp4", "tcp6", "udp4")
CONNECTED = ("unix-stream", "unix-seqpacket", "tcp4", "tcp6")
INTERRUPTIBLE = (*STREAMS, "udp4")
ONE = ("unix-stream",)

FAMILIES_OF_CASE: Dict[str, Tuple[str, ...]] = {
    "send": (*TRANSFERS, "udp6"),
    "read": TRANSFERS,
    "readv": TRANSFERS,
    "preadv2": STREAMS,
    "sendmsg": TRANSFERS,
    "sendmmsg": TRANSFERS,
    "nonblocking": TRANSFERS,
    "sendfile": (*STREAMS, "unix-seqpacket"),
    "splice": (*STREAMS, "tcp6"),
    "epoll": TRANSFERS,
    "poll": (*STREAMS, "unix-dgram"),
    "connect": CONNECTED,
    "errors": CONNECTED,
    "no_socket": ONE,
    "files": ONE,
    "duplicates": TRANSFERS,
    "path_only": STREAMS,
    "replaced": ONE,
    "passed": TRANSFERS,
    "threads": STREAMS,
    "forks": STREAMS,
    "grandchildren": STREAMS,
    "exec": STREAMS,
    "exec_from_thread": STREAMS,
    "spawn": STREAMS,
    "vfork": STREAMS,
    "abandoned": STREAMS,
    "restarted": STREAMS,
    "interrupted": STREAMS,
    "stopped": STREAMS,
    "retried": STREAMS,
    "restarted_twice": STREAMS,
    "jumped_out": STREAMS,
    "handler_same_call": INTERRUPTIBLE,
    "handler_same_restarted": INTERRUPTIBLE,
    "handler_other_call": INTERRUPTIBLE,
    "handlers_nested": INTERRUPTIBLE,
    "handlers_nested_restarted": INTERRUPTIBLE,
    "handler_on_own_stack": INTERRUPTIBLE,
    "handler_logs": STREAMS,
    "jumped_to_reused": INTERRUPTIBLE,
    "jumped_to_same_call": INTERRUPTIBLE,
    "jumped_out_of_nested": INTERRUPTIBLE,
    "handler_exits": INTERRUPTIBLE,
    "denied": STREAMS,
    "uring": STREAMS,
    "requests": CONNECTED,
    "requests_pieces": CONNECTED,
    "requests_epoll": STREAMS,
    "requests_passed": STREAMS,
    "requests_threads": STREAMS,
    "requests_prefork": STREAMS,
    "requests_greeting": STREAMS,
    "requests_forks": STREAMS,
    "requests_sendfile": STREAMS,
    "requests_splice": STREAMS,
    "requests_short": CONNECTED,
}

# Cases in which handlers run inside the calls that they interrupt.
HANDLED = (
    "handler_same_call",
    "handler_same_restarted",
    "handler_other_call",
    "handlers_nested",
    "handlers_nested_restarted",
    "handler_on_own_stack",
    "handler_logs",
    "jumped_to_reused",
    "jumped_to_same_call",
    "jumped_out_of_nested",
    "handler_exits",
)
# Cases in which the kernel restarts calls: strace -c counts every entry.
RESTARTING = (
    "restarted",
    "interrupted",
    "stopped",
    "retried",
    "restarted_twice",
    "jumped_out",
    *HANDLED,
    "requests_prefork",
)
# The number of calls depends on the scheduler or on buffers, not on the program alone.
VARYING = ("nonblocking", "requests_epoll", "stopped")


class Case(NamedTuple):
    name: str
    family: str

    def __str__(self) -> str:
        return f"{self.name}-{self.family}"


def all_cases() -> List[Case]:
    return [Case(name, family) for name in FAMILIES_OF_CASE for family in FAMILIES_OF_CASE[name]]


def is_of_requests(case: Case) -> bool:
    """It makes requests on connections, and knows how many."""
    return case.name.startswith("requests")


class Key(NamedTuple):
    name: str
    transport: str
    socket_type: Optional[str]
    abi: str


class Counts(NamedTuple):
    calls: int
    errors: Dict[str, int]
    bytes: int


# Rows of what a ring did; there is no call for them, and no CPU time of their own.
URING = "io_uring:"


@dataclass(frozen=True)
class Truth:
    """Every call of udsprobe's table that the workload made, and its requests.

    Attributes:
        left: calls beside those that never returned, and are in no row.
    """

    rows: Dict[Key, Counts]
    requests: Optional[int]
    left: int

    def calls_by_name(self) -> CounterOf[str]:
        total: CounterOf[str] = Counter()
        for key, counts in self.rows.items():
            total[key.name] += counts.calls
        return total


def command(program: Path, case: Case, truth: Path) -> List[str]:
    """The workload's command line; it writes its account to `truth`."""
    return [str(program), case.name, case.family, str(truth)]


def read_truth(path: Path) -> Truth:
    document = json.loads(path.read_text())
    rows = {
        Key(row["name"], row["transport"], row["socket_type"], row["abi"]): Counts(
            row["calls"], row["errors"], row["bytes"]
        )
        for row in document["calls"]
    }
    return Truth(rows, document["requests"], document["left"])
