"""The causes that a verdict can have. Each is declared here, once.

The table of docs/verdicts.md, the enumerations of the report's schema and the lab's list follow
from this one. What is seen of a cause, and when that is pressure, is in the rules that suspect it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from udsprobe.rules.accounts.request_time import BLOCKED

TRANSPORT, NOT_TRANSPORT, SET_UP = "transport", "not-transport", "set-up"
HEALTHY, UNKNOWN = "healthy", "unknown"


@dataclass(frozen=True)
class Cause:
    """What a verdict can name.

    Attributes:
        name: in the report.
        class_: of the banner. SET_UP: the socket lets nobody in, which is neither its speed nor
            the program behind it.
        shape: what it looks like in the numbers. likely: what is behind it. look: where to look
            next. All three as Markdown.
        parts: of a request's time that are its own.
        is_wait: requests wait in these parts.
        busy_with: what a thread does that is busy because of it (`Saturation.kind`).
        is_queue: connections wait for accept() because of it.
        fails_connects: connect() fails because of it, and no full queue is why.
        fails_replies: replies say so themselves.
    """

    name: str
    class_: str
    shape: str
    likely: str
    look: str
    parts: Tuple[str, ...] = ()
    is_wait: bool = False
    busy_with: Optional[str] = None
    is_queue: bool = False
    fails_connects: bool = False
    fails_replies: bool = False


CAUSES: Dict[str, Cause] = {
    each.name: each
    for each in (
        Cause(
            "accept-queue-full",
            SET_UP,
            "`refused` EAGAIN, TCP overflows or drops, `blocked_connects` at a listener; or "
            "connects of the target that fail with EAGAIN or sleep, or whose first packet (SYN) a "
            "listener on this host does not answer",
            "a backlog (or `somaxconn`, which limits it) smaller than the bursts",
            "the listener's `backlog`: `clamped_by` says which bound applies",
            is_queue=True,
        ),
        Cause(
            "accept-starved",
            SET_UP,
            "connections wait 10 ms or more in a queue that is not full, and longer than it "
            "takes to serve those before them; or they wait and none is accepted; or the program "
            "closes them as soon as it has accepted them, without a call that reads or writes; or "
            "requests wait for a thread while all of them wait for clients that send slowly; or "
            "a database replies that all its connections are taken (`no_seat`)",
            "the accepting thread does something else, is stopped, has no seat left, or cannot "
            "start a thread or process (`starts`); or its processes end after a few connections, "
            "again and again",
            "the shares of the accepting threads in `time.threads`",
            is_queue=True,
        ),
        Cause(
            "connect-failing",
            SET_UP,
            "three or more connects that fail with one errno, in the call or in the background; a "
            "finding beside what makes requests slow where it is known of all replies (HTTP/1) "
            "that none says that the server failed",
            "ENOENT: no such socket; ECONNREFUSED: no process listens; EACCES: permissions; "
            "EADDRNOTAVAIL: no port left",
            "`connects`, `listeners[].refused`",
            fails_connects=True,
        ),
        Cause(
            "fd-limit",
            SET_UP,
            "EMFILE or ENFILE; or 90 % of the limit in use and the rest gone within an hour",
            "a low `nofile`, or a leak",
            "`targets[].fds`",
        ),
        Cause(
            "connection-churn",
            NOT_TRANSPORT,
            "one new connection or more for each ten requests, at least 200 connections a "
            "second, and their calls take 5 % of the CPU time or more (or, of those that the "
            "target opens, they take 5 % of the time of its own requests); or processes and "
            "threads that are started for connections keep a tenth of a CPU busy beside the "
            "requests",
            "HTTP/1.0, `Connection: close`, no pool",
            "the client's keep-alive settings",
        ),
        Cause(
            "app-cpu",
            NOT_TRANSPORT,
            "a serving thread above 80 % busy, mostly in its own code; threads that take "
            "turns at one lock and use one CPU together; single requests that stall a loop",
            "computing in the event loop, too few workers",
            "the function that the verdict names; a profiler on that thread where it names none",
            parts=("cpu",),
            busy_with="cpu",
        ),
        Cause(
            "app-blocked",
            NOT_TRANSPORT,
            "sleep for a lock, the disk, a timer or another thing makes up most of a request: "
            "1 ms of it, or half of all request time is in a slow tail; or clients give up on "
            "requests that nothing answers (`given_up`), or the program ends them without a "
            "reply (`dropped`)",
            "a blocking call, lock contention, `sleep()`",
            "the function that the verdict names, and the call it sleeps in",
            parts=BLOCKED,
            is_wait=True,
        ),
        Cause(
            "upstream-wait",
            NOT_TRANSPORT,
            "sleep for upstream requests makes up most of a request: 1 ms of it, or half of "
            "all request time is in a slow tail; or clients give up meanwhile; or own requests "
            "end without an answer: the upstream closes their connection (`dropped`), or they "
            "are given up later than others are answered (`given_up`)",
            "a slow or failing database or service",
            "attach to the process that the verdict names",
            parts=("upstream",),
            is_wait=True,
        ),
        Cause(
            "app-failing",
            NOT_TRANSPORT,
            "HTTP replies with a status of 500 or above (`http.failed`), three of them and 1 % of "
            "all: of the program itself, or passed on from an upstream; not those that come as "
            "late as what waits, nor those for own requests without an answer; or processes that "
            "serve end by a signal or a status other than 0 (`exits`): three and one in 10 s, "
            "or with three requests and 1 % of all in progress, or the last one by a crash; by "
            "SIGTERM and the like only with requests in progress while others of it go on",
            "an error in the program, a limit of its own or of its threads (`starts`), a "
            "dependency that fails",
            "the program's log at these times",
            fails_replies=True,
        ),
        Cause(
            "cpu-contention",
            NOT_TRANSPORT,
            "`runq` makes up a quarter of a request, 0.3 ms at least or a p99 far above the "
            "median, or most of a busy thread's time",
            "other processes, a CPU quota, an affinity that leaves idle CPUs out, far more threads "
            "than CPUs",
            "`time.cpu_holders`, `cpu.cgroups`, `cpu.affinities`",
            parts=("runq",),
            is_wait=True,
            busy_with="runq",
        ),
        Cause(
            "send-blocked",
            NOT_TRANSPORT,
            "a reader that sleeps while its sender is stopped; a send buffer a quarter full "
            "(TCP: half) or more, or one that stops its sender, that its reader takes 100 ms or "
            "more to empty; a TCP reader that takes nothing for a second; requests that "
            "sleep in send calls; or replies that stop again and again because the program "
            "set a small buffer, with stops of 1 ms or more",
            "a reader that is slow, stuck or stopped; a `SO_SNDBUF` smaller than the kernel's "
            "default",
            "the peer that `connections` names; `send_buffer_is_fixed` there",
            parts=("send",),
            is_wait=True,
        ),
        Cause(
            "transport",
            TRANSPORT,
            "a serving thread above 80 % busy, mostly in socket and poller calls; or moving "
            "bytes is most of a request, its whole reply included, and more than 1 ms of it; or "
            "Nagle's algorithm holds the last part of replies, or of requests upstream, for a "
            "quarter of a request or more, and more than 1 ms",
            "many small messages, large bodies; several small sends for one message without "
            "`TCP_NODELAY`",
            "calls and bytes a request, `connections[].held_us`; the other transport",
            parts=("transport",),
            busy_with="transport",
        ),
        Cause(
            "healthy",
            HEALTHY,
            "none of these",
            "–",
            "the headroom in `evidence`",
        ),
        Cause(
            "unknown",
            UNKNOWN,
            "fewer than 20 requests, and no other evidence; or what requests spend their time "
            "on is not measured (strategy `bcc`, detail `light`)",
            "–",
            "wait, or send traffic",
        ),
    )
}

PARTS: Dict[str, Tuple[str, ...]] = {
    name: cause.parts for name, cause in CAUSES.items() if cause.parts
}
"""Causes inside a service → the parts of request time that are their own."""
FAILING = tuple(name for name, cause in CAUSES.items() if cause.fails_replies)
WAITING = tuple(name for name, cause in CAUSES.items() if cause.is_wait)
QUEUES = tuple(name for name, cause in CAUSES.items() if cause.is_queue)
FAILED_CONNECTS = tuple(name for name, cause in CAUSES.items() if cause.fails_connects)
CAUSE_OF_BUSY = {cause.busy_with: name for name, cause in CAUSES.items() if cause.busy_with}
"""`Saturation.kind` → the cause of it."""
