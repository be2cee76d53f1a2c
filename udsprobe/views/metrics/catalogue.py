"""Every metric that `udsprobe export` can show. `docs/metrics.md` has a row for each, by test.

A name is written once, in OpenTelemetry's dots; Prometheus' name follows from it by that
system's rules: prefix, base unit, `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from udsprobe.views.metrics.bounds import COARSE_NS, FINE_NS

_CALL = ("name", "transport", "socket_type", "abi")
_TRAFFIC = ("transport", "socket_type", "direction")
_LISTENER = ("transport", "socket_type", "address", "netns")
_DESTINATION = ("transport", "address")
_UNIT_CODES = {"seconds": "s", "bytes": "By", "ratio": "1"}

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric; there is one of each, in `CATALOGUE`.

    Attributes:
        dotted: name below `udsprobe.`.
        kind: `counter`, `gauge` or `histogram`; counters and histograms are
            cumulative since attach.
        unit: `seconds`, `bytes`, `ratio`, or what is counted, as `{call}`.
        labels: their names, in the order of every series' values.
        help: what it is, for a human.
        bounds_ns: of a histogram.
        semantic: OpenTelemetry's own name for it, where there is one.
    """

    dotted: str
    kind: str
    unit: str
    labels: Tuple[str, ...]
    help: str
    bounds_ns: Tuple[int, ...] = ()
    semantic: str = ""

    @property
    def prometheus(self) -> str:
        """The name of Prometheus, `_total` included."""
        parts = ["udsprobe", self.dotted.replace(".", "_")]
        if self.unit in _UNIT_CODES:
            parts.append(self.unit)
        return "_".join([*parts, "total"] if self.kind == COUNTER else parts)

    @property
    def otel(self) -> str:
        """The name of OpenTelemetry."""
        return self.semantic or f"udsprobe.{self.dotted}"

    @property
    def otel_unit(self) -> str:
        """UCUM, as OpenTelemetry writes units."""
        return _UNIT_CODES.get(self.unit, self.unit)

    @property
    def series(self) -> int:
        """Time series of one set of label values, as Prometheus counts them."""
        return len(self.bounds_ns) + 3 if self.kind == HISTOGRAM else 1


CATALOGUE: Dict[str, Metric] = {}


def _add(metric: Metric) -> Metric:
    CATALOGUE[metric.prometheus] = metric
    return metric


def _counter(dotted: str, unit: str, labels: Tuple[str, ...], text: str) -> Metric:
    return _add(Metric(dotted, COUNTER, unit, labels, text))


def _gauge(
    dotted: str, unit: str, labels: Tuple[str, ...], text: str, semantic: str = ""
) -> Metric:
    return _add(Metric(dotted, GAUGE, unit, labels, text, semantic=semantic))


def _histogram(
    dotted: str, labels: Tuple[str, ...], text: str, bounds_ns: Tuple[int, ...] = COARSE_NS
) -> Metric:
    return _add(Metric(dotted, HISTOGRAM, "seconds", labels, text, bounds_ns))


# --- system calls
CALLS = _counter("syscall.calls", "{call}", _CALL, "System calls of the targets that returned.")
CALL_ERRORS = _counter(
    "syscall.errors", "{call}", (*_CALL, "errno"), "System calls that failed, by errno."
)
CALL_BYTES = _counter("syscall.moved", "bytes", _CALL, "Bytes that system calls moved.")
CALL_CPU = _counter("syscall.cpu", "seconds", _CALL, "Time in system calls on a CPU.")
CALL_SLOW = _counter(
    "syscall.slow", "seconds", _CALL, "Time in system calls that took 1 ms or longer."
)
CALL_DURATION = _histogram(
    "syscall.duration", _CALL, "Duration of system calls whose entry was seen."
)
CALLS_IN_FLIGHT = _gauge(
    "syscall.in_flight", "{call}", _CALL, "Threads inside a system call at the last sample."
)
TRAFFIC_MESSAGES = _counter(
    "traffic.messages", "{message}", _TRAFFIC, "Messages that sockets moved, with detail light."
)
TRAFFIC_BYTES = _counter("traffic.moved", "bytes", _TRAFFIC, "Bytes of these messages.")
ALL_CALLS = _counter(
    "syscall.all",
    "{call}",
    (),
    "All system calls of the targets; divide by served requests for calls per request.",
)

# --- requests
SERVED = _counter("served.requests", "{request}", (), "Requests served by the targets.")
UNANSWERED = _counter(
    "served.requests.unanswered",
    "{request}",
    ("ended_by",),
    "Requests whose connection ended without a byte of reply; ended_by: client, or program.",
)
HTTP_REPLIES = _counter(
    "served.http.replies",
    "{reply}",
    ("outcome",),
    "Replies with an HTTP/1 status; outcome: failed where it is 500 or above, or answered.",
)
IN_PIECES = _counter(
    "served.replies_in_pieces",
    "{reply}",
    (),
    "Replies that came in several pieces: HTTP/1, FastCGI, PostgreSQL, MySQL.",
)
PAUSES = _counter(
    "served.reply.pauses",
    "seconds",
    (),
    "Time between their pieces in which nothing was sent, though there was room.",
)
SERVED_DURATION = _histogram(
    "served.request.duration", (), "From the first byte queued to the reply sent.", FINE_NS
)
SERVED_STAGE = _histogram(
    "served.request.stage", ("stage",), "The stages of served requests.", FINE_NS
)
SERVED_ACTIVITY = _counter(
    "served.request.activity",
    "seconds",
    ("activity",),
    "What the serving thread did between its last receive call and the reply.",
)
HANDED_OVER = _counter(
    "served.requests.handed_over", "{request}", (), "Requests answered by another thread."
)
PIPELINED = _counter(
    "served.requests.pipelined",
    "{request}",
    (),
    "Requests that came before the reply to the previous one began: turns may not be requests.",
)
MULTIPLEXED = _counter(
    "served.requests.multiplexed",
    "{request}",
    (),
    "Turns on HTTP/2 connections whose streams are not followed: not requests.",
)
TLS_HANDSHAKES = _counter(
    "served.tls_handshakes",
    "{handshake}",
    (),
    "TLS handshakes of clients, to their end; they are not among the requests.",
)
UPSTREAM_DURATION = _histogram(
    "upstream.request.duration", _DESTINATION, "Requests of the targets by destination.", FINE_NS
)
UPSTREAM_UNANSWERED = _counter(
    "upstream.requests.unanswered",
    "{request}",
    (*_DESTINATION, "ended_by"),
    "Requests of the targets that ended without a byte of answer; ended_by: upstream, or target.",
)
UPSTREAM_HTTP_REPLIES = _counter(
    "upstream.http.replies",
    "{reply}",
    (*_DESTINATION, "outcome"),
    "Answers with an HTTP/1 status; outcome: failed where it is 500 or above, or answered.",
)
UPSTREAM_OPENED = _counter(
    "upstream.connections", "{connection}", _DESTINATION, "Connections opened for them."
)
CONNECT_DURATION = _histogram(
    "connect.duration",
    (*_DESTINATION, "errno", "background"),
    "connect() calls of the targets; errno is empty where they connected. background=yes: "
    "those of EINPROGRESS that connected or failed later, and until when.",
)

# --- accept queues
QUEUE_DEPTH = _gauge(
    "listener.queue.depth", "{connection}", _LISTENER, "Connections waiting to be accepted."
)
QUEUE_PEAK = _gauge(
    "listener.queue.peak", "{connection}", _LISTENER, "Highest depth in the last interval."
)
QUEUE_PEAK_EVER = _gauge(
    "listener.queue.peak_ever", "{connection}", _LISTENER, "Highest depth since attach."
)
QUEUE_LIMIT = _gauge(
    "listener.queue.limit",
    "{connection}",
    _LISTENER,
    "Most connections the queue holds; the sum if an address has several queues.",
)
QUEUE_FILL = _gauge(
    "listener.queue.fill",
    "ratio",
    _LISTENER,
    "Highest depth in the last interval, or depth without a probe at the queue, divided by the "
    "limit; of the fullest queue of an address.",
)
QUEUES = _gauge(
    "listener.queues", "{queue}", _LISTENER, "Sockets that listen at the address (SO_REUSEPORT)."
)
ESTABLISHED = _counter(
    "listener.established", "{connection}", _LISTENER, "Connections that entered the queue."
)
ACCEPTED = _counter(
    "listener.accepted", "{connection}", _LISTENER, "Connections that accept() took out."
)
ACCEPT_WAIT = _histogram(
    "listener.wait", _LISTENER, "Time that accepted connections spent in the queue."
)
BLOCKED_CONNECT = _histogram(
    "listener.blocked_connect", _LISTENER, "Clients' time in connect() waiting for room."
)
BLOCKED_NOW = _gauge(
    "listener.blocked_connects", "{client}", _LISTENER, "Clients inside connect() now."
)
REFUSED = _counter(
    "listener.refused", "{connect}", (*_LISTENER, "errno"), "Failed connects of any process."
)
DROPS = _counter(
    "listener.drops",
    "{connection}",
    _LISTENER,
    "Dropped by a TCP listener; with TCP_DEFER_ACCEPT also one for each connection.",
)
SYN_QUEUE = _gauge("listener.syn_queue", "{handshake}", _LISTENER, "TCP handshakes in progress.")

# --- connections
CONNECTIONS = _gauge("connections", "{connection}", (), "Open connections of the targets.")
_GROUP = ("transport", "role", "address", "peer")
RECEIVE_QUEUE = _gauge(
    "connection.receive_queue",
    "bytes",
    _GROUP,
    "Bytes the targets have not read; of the busiest connections.",
)
SEND_QUEUE = _gauge(
    "connection.send_queue",
    "bytes",
    _GROUP,
    "Bytes the peer has not taken; of the busiest connections; Unix: memory.",
)

# --- threads, targets, namespaces
THREAD_TIME = _counter(
    "thread.time", "seconds", ("activity",), "Time of the targets' threads, by what they did."
)
THREADS = _gauge("threads", "{thread}", (), "Living threads of the targets.")
TARGETS = _gauge("targets", "{process}", (), "Observed processes that run.")
TARGETS_EXITED = _counter("targets.exited", "{process}", (), "Observed processes that ended.")
TARGETS_NONZERO_EXITS = _counter(
    "targets.nonzero_exits",
    "{process}",
    ("how",),
    "Observed processes that did not end with status 0, by status or signal.",
)
STARTS = _counter("starts", "{thread}", (), "Threads and processes that the targets started.")
STARTS_REFUSED = _counter(
    "starts.refused",
    "{call}",
    ("errno",),
    "Calls of the targets that started no thread or process: EAGAIN, a limit; ENOMEM.",
)
TARGET_INFO = _gauge(
    "target.info",
    "1",
    ("pid", "comm", "unit", "container", "runtime", "pod"),
    "1 for each observed process that runs, with where it runs, from its cgroup.",
)
TARGET_THREADS = _gauge(
    "target.threads", "{thread}", ("pid",), "Threads of a process.", "process.thread.count"
)
TARGET_FDS = _gauge(
    "target.open_fds",
    "{file_descriptor}",
    ("pid",),
    "Open file descriptors of a process.",
    "process.unix.file_descriptor.count",
)
TARGET_FDS_LIMIT = _gauge(
    "target.max_fds", "{file_descriptor}", ("pid",), "Its soft limit of file descriptors."
)
TARGET_FDS_REFUSED = _counter(
    "target.refused_fds",
    "{call}",
    ("pid", "errno"),
    "Calls of a process that got no file descriptor: EMFILE, its own limit; ENFILE, the host's.",
)
_CGROUP = ("cgroup",)
CPU_QUOTA = _gauge(
    "cgroup.cpu.quota", "{cpu}", _CGROUP, "CPUs that a cgroup of targets may use; no quota: absent."
)
CPU_PERIODS = _counter(
    "cgroup.cpu.periods", "{period}", _CGROUP, "Quota periods with threads to run."
)
CPU_THROTTLED_PERIODS = _counter(
    "cgroup.cpu.throttled_periods",
    "{period}",
    _CGROUP,
    "Quota periods in which it was throttled.",
)
CPU_THROTTLED = _counter(
    "cgroup.cpu.throttled", "seconds", _CGROUP, "Time it was throttled, summed over CPUs."
)
CPU_USAGE = _counter("cgroup.cpu.usage", "seconds", _CGROUP, "CPU time that it used.")
_NETNS = ("netns",)
SOMAXCONN = _gauge("netns.somaxconn", "{connection}", _NETNS, "net.core.somaxconn.")
OVERFLOWS = _counter(
    "netns.listen_overflows",
    "{connection}",
    _NETNS,
    "TcpExt ListenOverflows of all listeners in the network namespace, since attach.",
)
LISTEN_DROPS = _counter(
    "netns.listen_drops",
    "{connection}",
    _NETNS,
    "TcpExt ListenDrops of all listeners in the network namespace, since attach.",
)
COOKIES_SENT = _counter("netns.syncookies_sent", "{cookie}", _NETNS, "SYN cookies, since attach.")

# --- verdict
VERDICT = _gauge("verdict", "1", ("cause",), "1 for what limits the targets in the last interval.")
HARM = _gauge(
    "verdict.harm",
    "1",
    ("class", "kind"),
    "1 for the harm in the last interval, and where to look.",
)
TRANSPORT_SHARE = _gauge(
    "verdict.transport_share", "ratio", (), "Part of served-request time that is transport."
)
FINDINGS = _gauge(
    "findings", "{finding}", ("severity", "id"), "Findings of the last interval by kind."
)

# --- udsprobe itself
BUILD = _gauge(
    "build.info",
    "1",
    ("version", "strategy", "kernel", "arch"),
    "1, labelled with version, strategy, kernel and architecture.",
)
MEASUREMENT = _gauge(
    "measurement.info",
    "1",
    ("measurement", "rests_on", "state"),
    "1 for each measurement, with what it rests on here.",
)
OBSERVED = _counter(
    "observed",
    "seconds",
    ("measurement",),
    "With detail auto: how long each measurement was observed; divide its rates by this one's.",
)
SAMPLES = _counter("samples", "{sample}", (), "Samples taken since attach.")
SAMPLED_AT = _gauge("sample.timestamp", "seconds", (), "When the last sample was taken, Unix time.")
ATTACH_TIME = _gauge("attach", "seconds", (), "How long attaching took.")
OWN_CPU = _counter("probe.cpu", "seconds", (), "CPU time of the udsprobe process.")
OWN_MEMORY = _gauge("probe.resident", "bytes", (), "Resident memory of the udsprobe process.")
BPF_CPU = _counter("probe.bpf_cpu", "seconds", (), "Run time of the probes while measured.")
BPF_MEASURED = _counter("probe.bpf_measured", "seconds", (), "How long that was measured.")
SEEN = _counter("probe.events.seen", "{call}", (), "System calls of the targets that ended.")
COUNTED = _counter("probe.events.counted", "{call}", (), "Of these, counted in the table.")
LOST = _counter("probe.events.lost", "{call}", ("reason",), "Of these, lost.")
MISSED = _counter("probe.missed_runs", "{run}", ("program",), "Probe runs that the kernel skipped.")
TURNED_AWAY = _counter(
    "probe.turned_away",
    "{object}",
    (),
    "Threads, connections and listeners that found no room in a map.",
)
UNREAD = _counter(
    "probe.unread_messages", "{message}", (), "Messages whose bytes could not be counted."
)
UNPLACED = _counter(
    "probe.unplaced_failures", "{connect}", (), "Failed connects to addresses without a listener."
)
SERIES_LIMIT = _gauge("series.limit", "{series}", (), "--max-series.")
FOLDED = _gauge(
    "series.folded",
    "{object}",
    ("kind",),
    "Listeners, destinations and the like without a series of their own, counted in `other`.",
)
