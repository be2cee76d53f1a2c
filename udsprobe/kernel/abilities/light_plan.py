"""What detail `light` attaches, what each measurement rests on then, and what it does not tell.

Pure. The names of the measurements are those of `plan.py` beside it, which has detail `full`.
No program is on system calls or on the scheduler then: only what moves bytes over a socket, or
starts and ends processes, runs one.
"""

from __future__ import annotations

from typing import FrozenSet, Iterable, Tuple

from udsprobe.sample import MeasurementState

# Linux kernel commit 6e6eda44b939 "sock: add tracepoint for send recv length" (in v6.3)
MESSAGES = ("sock_send_length", "sock_recv_length")
# Attached before sk_data_ready, at the same tracepoint: listeners whose listen() nobody saw.
ONLY_LIGHT = frozenset({*MESSAGES, "light_listener"})
REQUIRED = ONLY_LIGHT | {"sk_data_ready"}
PROGRAMS = REQUIRED | {
    *("inet_sock_set_state", "sched_process_fork", "sched_process_exec", "sched_process_exit"),
}
WHY = "detail is light"
NEEDS = "tracepoints sock_send_length, sock_recv_length and sk_data_ready (Linux 6.3)"
_MOVED = "raw_tp:sock_send_length+sock_recv_length"
_BOTH = "raw_tp:sk_data_ready+sock_send_length+sock_recv_length"
_ON = {
    "processes": "tp_btf:sched_process_fork+exec+exit",
    "listeners": "sock_diag+iter:task_file",
    "accept_queue": "raw_tp:sk_data_ready",
    "traffic": _MOVED,
    "cpu": "procfs+cgroupfs",
}
_DEGRADED = {
    "served_requests": (
        _BOTH,
        "until the socket has the reply; HTTP/2 and requests sent ahead are not told apart",
    ),
    "upstream_requests": (
        _BOTH,
        "from the end of the send call on, and without names that are looked up",
    ),
    "connections": (
        f"{_MOVED}+map:connections",
        "from the first message on, and without the sleep of senders",
    ),
    "queue_high_water": (_BOTH, "not while a send call sleeps"),
    "verdict": (
        "accept_queue+processes+connections",
        "accept queues, descriptors and readers only: what requests spend their time on is not "
        "measured",
    ),
}
_OFF = {
    "syscalls": "system calls",
    "cpu_time": "system calls",
    "thread_time": "threads",
    "loops": "system calls",
    "cpu_holders": "the scheduler",
    "waits": "the scheduler",
    "slowest_requests": "system calls",
    "in_flight": "system calls",
    "stages": "when calls begin",
    "accept_wait": "when accept() returns",
    "refused_connects": "what connect() returns",
    "connects": "what connect() returns",
    "io_uring": "operations of io_uring; their messages are in traffic",
}
# In the order of plan.measurements(), which has no traffic: system calls tell it.
NAMES = (
    *("syscalls", "cpu_time", "thread_time", "loops", "cpu_holders", "waits"),
    *("in_flight", "processes"),
    *("served_requests", "stages", "slowest_requests", "listeners", "accept_queue", "accept_wait"),
    *("refused_connects", "connects", "upstream_requests", "connections", "queue_high_water"),
    *("traffic", "io_uring", "cpu", "verdict"),
)


def has_light(events: FrozenSet[str]) -> bool:
    """Whether this kernel has what detail `light` rests on."""
    return events >= REQUIRED


def light_measurements(
    attached: FrozenSet[str], *, unix_unread: bool = True
) -> Tuple[MeasurementState, ...]:
    """The state of every measurement; arguments as of `plan.measurements`."""
    states = map(_state, NAMES)
    return tuple(_adjusted(states, attached, unix_unread))


def _state(name: str) -> MeasurementState:
    if name in _ON:
        return MeasurementState(name, _ON[name], "on", None)
    if name in _DEGRADED:
        rests_on, reason = _DEGRADED[name]
        return MeasurementState(name, rests_on, "degraded", f"{WHY}: {reason}")
    return MeasurementState(name, None, "off", f"{WHY}: it does not see {_OFF[name]}")


def _adjusted(
    states: Iterable[MeasurementState], attached: FrozenSet[str], unix_unread: bool
) -> Iterable[MeasurementState]:
    """What this kernel lacks beside."""
    for state in states:
        lacks = []
        if state.name == "queue_high_water" and not unix_unread:
            lacks.append("receive queues of TCP only")
        if state.name == "accept_queue" and "inet_sock_set_state" not in attached:
            lacks.append("TCP listeners from the next sample on")
        if lacks:
            reason = "; ".join([state.reason or WHY, *lacks])
            state = MeasurementState(state.name, state.rests_on, "degraded", reason)
        yield state
