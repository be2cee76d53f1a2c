"""What each measurement rests on, and what this kernel makes of it.

Pure: the outcome of loading goes in, the states of `probe.measurements` come
out. A measurement that nothing carries is `off` with a reason, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, List, Optional, Tuple

from udsprobe.kernel.abilities import light_plan
from udsprobe.sample import MeasurementState


@dataclass(frozen=True)
class EventProgram:
    """A program that runs on a kernel event.

    Attributes:
        name: of the function in `bpf/tracepoint.bpf.c`.
        required: without it no strategy is of use.
        hook: how the kernel calls it, `tp_btf`, `raw_tp` or `fentry`.
        at: the tracepoint or function; empty: it has the same name.
    """

    name: str
    required: bool
    hook: str = "tp_btf"
    at: str = ""

    @property
    def type_name(self) -> str:
        """What the kernel's BTF holds if and only if there is something to attach to."""
        place = self.at or self.name
        return place if self.hook == "fentry" else f"btf_trace_{place}"


EVENT_PROGRAMS = (
    EventProgram("sched_process_fork", True),
    EventProgram("sched_process_exec", True),
    EventProgram("sched_process_exit", True),
    EventProgram("sched_switch", True),
    EventProgram("sched_wakeup", True),
    EventProgram("sched_waking", False),
    # Linux kernel commit 40e0b0908142 "net/sock: Introduce trace_sk_data_ready()" (in v6.3)
    EventProgram("sk_data_ready", False, "raw_tp"),
    EventProgram("sock_def_readable", False, "fentry"),
    # Linux kernel commit 6e6eda44b939 "sock: add tracepoint for send recv length" (in v6.3)
    EventProgram("light_listener", False, "raw_tp", "sk_data_ready"),
    EventProgram("sock_send_length", False, "raw_tp"),
    EventProgram("sock_recv_length", False, "raw_tp"),
    EventProgram("inet_sock_set_state", False),
    # Linux kernel commit 2ad57931db64 "io_uring: rename trace_io_uring_submit_sqe() tracepoint"
    EventProgram("io_uring_submit_req", False),
    EventProgram("io_uring_submit_sqe", False),
    EventProgram("io_uring_complete", False, "raw_tp"),
    EventProgram("io_uring_cqe_overflow", False, "raw_tp"),
    EventProgram("signal_deliver", True),
    EventProgram("sys_enter", True),
    EventProgram("sys_exit", True),
)


WITHOUT_EVENTS = frozenset({"listeners", "cpu"})
SKIPS = (
    "events are missed when a probe preempts another of its kind on this kernel: see missed events"
)

URING_COMPLETE = "io_uring_complete"
URING = frozenset({URING_COMPLETE})
# Linux kernel commit 47894438e916 "io_uring: add trace support for CQE overflow" (in v5.19)
URING_OVERFLOW = "io_uring_cqe_overflow"
# One name or the other; the kernel has never had both.
URING_SUBMITS = frozenset({"io_uring_submit_req", "io_uring_submit_sqe"})
# It tells who ends a wait.
WAKER_PROGRAM = "sched_waking"
# Either tells when bytes or connections arrive.
ARRIVALS = ("sk_data_ready", "sock_def_readable")
# Where calls are seen.
TRACEPOINTS = "tp_btf:sys_enter+sys_exit"
RETURN_TRACEPOINT = "tp_btf:sys_exit"
INSTEAD = (
    (TRACEPOINTS, "fentry+fexit:system calls"),
    (RETURN_TRACEPOINT, "fexit:system calls"),
    ("sys_enter+sys_exit", "fentry+fexit:system calls"),
    ("sys_exit", "fexit:system calls"),
)
# What is less exact then, and how.
LESS_BY_FUNCTIONS = {
    "thread_time": "CPU time in calls outside the table counts as user",
    "processes": "descriptors refused to calls outside the table are not counted",
    "slowest_requests": "calls outside the table are not among those of a request",
}
NO_OTHER_CALLS = "strategy fentry has no probes on system calls unrelated to sockets"


def strategies(
    asked: str, events: FrozenSet[str], *, functions: bool = False, preempts: bool = False
) -> Tuple[str, ...]:
    """The strategies to try, best first; none when the one asked for has nothing to attach to.

    Calls that have nothing to do with sockets pass no program on a function, where every call of
    the host passes the tracepoints. But a program on a function is skipped while another task
    that was preempted in it waits for the CPU, and then a call is not counted.

    Args:
        asked: `auto` or one strategy.
        events: names of the event programs that the kernel has something to attach to for.
        functions: programs can stand at the functions of system calls.
        preempts: tasks can be preempted in the kernel.
    """
    has_tracepoint, has_function = (name in events for name in ARRIVALS)
    if asked == "fentry":
        return ("fentry",) if has_function else ()
    if asked == "tracepoint" or not has_function:
        return ("tracepoint",)
    if has_tracepoint and (preempts or not functions):
        return ("tracepoint",)
    return ("fentry", "tracepoint")


def programs(strategy: str, events: FrozenSet[str], detail: str = "full") -> FrozenSet[str]:
    """Which of the possible event programs a strategy takes, with that detail."""
    if detail == "light":
        return events & light_plan.PROGRAMS
    hooks = {program.name: program.hook for program in EVENT_PROGRAMS}
    if strategy == "fentry":
        return events - {"sk_data_ready"} - light_plan.ONLY_LIGHT
    found = frozenset(name for name in events if hooks[name] != "fentry")
    return found - light_plan.ONLY_LIGHT


def attach_order(attached: FrozenSet[str]) -> List[str]:
    """In which order event programs are made live; the other way round they are taken back.

    What counts a call when it ends is last to come and first to go: a call that
    ended while sleep was no longer told of would have slept on a CPU.
    """
    return sorted(attached, key=lambda name: (name.startswith("sys_"), name))


def tells_arrivals(attached: FrozenSet[str]) -> bool:
    """Whether these event programs see bytes and connections arrive."""
    return not attached.isdisjoint(ARRIVALS)


def measurements(
    attached: FrozenSet[str],
    *,
    sleeping_calls: bool = True,
    unix_unread: bool = True,
    preemptible: bool = False,
    functions: bool = False,
) -> Tuple[MeasurementState, ...]:
    """The state of every measurement.

    Args:
        attached: names of the event programs that are live.
        sleeping_calls: the call that a sleeping thread is in can be read.
        preemptible: programs can be preempted by others of their kind.
        unix_unread: Unix streams keep the number of bytes in their receive queue.
        functions: calls are seen at their functions.
    """
    found = _measurements(attached, sleeping_calls, unix_unread)
    if functions:
        found = tuple(map(_by_functions, found))
    return tuple(map(_interrupted, found)) if preemptible else found


def _by_functions(state: MeasurementState) -> MeasurementState:
    """The same with other probes, which see less of what threads do."""
    if state.rests_on is None:
        return state
    rests_on = state.rests_on
    for tracepoints, functions in INSTEAD:
        rests_on = rests_on.replace(tracepoints, functions)
    if state.state == "on" and state.name in LESS_BY_FUNCTIONS:
        reason = f"{LESS_BY_FUNCTIONS[state.name]}: {NO_OTHER_CALLS}"
        return MeasurementState(state.name, rests_on, "degraded", reason)
    return MeasurementState(state.name, rests_on, state.state, state.reason)


def _measurements(
    attached: FrozenSet[str], sleeping_calls: bool, unix_unread: bool
) -> Tuple[MeasurementState, ...]:
    arrival = _arrival(attached)
    return (
        _on("syscalls", TRACEPOINTS),
        _on("cpu_time", "tp_btf:sched_switch"),
        _on("thread_time", "tp_btf:sched_switch+sched_wakeup+sys_enter+sys_exit"),
        _on("loops", TRACEPOINTS),
        _on("cpu_holders", "tp_btf:sched_switch"),
        _waits(attached, sleeping_calls),
        _in_flight(sleeping_calls),
        _on("processes", "tp_btf:sched_process_fork+exec+exit"),
        *_requests(arrival),
        _slowest(arrival),
        _on("listeners", "sock_diag+iter:task_file"),
        *_accept_queue(arrival, "inet_sock_set_state" in attached),
        _on("connects", RETURN_TRACEPOINT),
        *_peers(arrival is not None),
        _queues(arrival, unix_unread),
        _io_uring(attached),
        _on("cpu", "procfs+cgroupfs"),
        _verdict(arrival is not None),
    )


def _interrupted(state: MeasurementState) -> MeasurementState:
    """While a preempted program is under way, the kernel skips it for others on that CPU."""
    if state.state == "off" or state.name in WITHOUT_EVENTS:
        return state
    reason = f"{state.reason}; {SKIPS}" if state.reason else SKIPS
    return MeasurementState(state.name, state.rests_on, "degraded", reason)


def _on(name: str, rests_on: str) -> MeasurementState:
    return MeasurementState(name, rests_on, "on", None)


def _arrival(attached: FrozenSet[str]) -> Optional[str]:
    hooks = {program.name: program.hook for program in EVENT_PROGRAMS}
    return next((f"{hooks[name]}:{name}" for name in ARRIVALS if name in attached), None)


def _in_flight(sleeping_calls: bool) -> MeasurementState:
    if sleeping_calls:
        return _on("in_flight", "iter:task")
    return MeasurementState(
        "in_flight",
        "iter:task",
        "degraded",
        "without calls that began before attach: this kernel does not show where a thread sleeps",
    )


def _waits(attached: FrozenSet[str], sleeping_calls: bool) -> MeasurementState:
    rests_on = f"tp_btf:{WAKER_PROGRAM}+sched_wakeup+sched_switch"
    if WAKER_PROGRAM not in attached:
        reason = (
            "this kernel has no tracepoint sched_waking, or its type information (BTF) does not "
            "tell how to know an interrupt from a thread"
        )
        return MeasurementState("waits", None, "off", reason)
    if sleeping_calls:
        return _on("waits", rests_on)
    reason = "without locks by address: this kernel does not show where a thread sleeps"
    return MeasurementState("waits", rests_on, "degraded", reason)


def _io_uring(attached: FrozenSet[str]) -> MeasurementState:
    submits = sorted(attached & URING_SUBMITS)
    if submits and attached.issuperset(URING):
        rests_on = f"tp_btf:{submits[0]}+io_uring_complete"
        if URING_OVERFLOW in attached:
            return _on("io_uring", rests_on)
        reason = (
            "without completions that found no room: needs tracepoint io_uring_cqe_overflow "
            "(Linux 5.19)"
        )
        return MeasurementState("io_uring", rests_on, "degraded", reason)
    reason = "this kernel has no io_uring, or does not show which operation a completion belongs to"
    return MeasurementState("io_uring", None, "off", reason)


def _verdict(has_arrival: bool) -> MeasurementState:
    rests_on = "thread_time+stages+accept_queue+connects"
    if has_arrival:
        return MeasurementState("verdict", rests_on, "on", None)
    reason = "without waits before the receive call and without accept queues between samples"
    return MeasurementState("verdict", rests_on, "degraded", reason)


def _peers(has_arrival: bool) -> Tuple[MeasurementState, MeasurementState]:
    rests_on = {
        "upstream_requests": TRACEPOINTS,
        "connections": "tp_btf:sys_exit+map:connections",
    }
    if has_arrival:
        requests, connections = (_on(name, what) for name, what in rests_on.items())
        return requests, connections
    lacking = {"upstream_requests": "the peer and recv_wait", "connections": "the peer"}
    reason = "needs tracepoint sk_data_ready (Linux 6.3)"
    requests, connections = (
        MeasurementState(name, what, "degraded", f"without {lacking[name]}: {reason}")
        for name, what in rests_on.items()
    )
    return requests, connections


def _requests(arrival: Optional[str]) -> Tuple[MeasurementState, MeasurementState]:
    if arrival:
        return (
            _on("served_requests", f"{arrival}+tp_btf:sys_exit"),
            _on("stages", f"{arrival}+tp_btf:sys_exit"),
        )
    reason = "needs tracepoint sk_data_ready (Linux 6.3)"
    return (
        MeasurementState(
            "served_requests",
            "tp_btf:sys_exit",
            "degraded",
            f"a request begins at its receive call: {reason}",
        ),
        MeasurementState(
            "stages", "tp_btf:sys_exit", "degraded", f"without accept_wait and recv_wait: {reason}"
        ),
    )


def _slowest(arrival: Optional[str]) -> MeasurementState:
    if arrival:
        return _on("slowest_requests", f"{arrival}+tp_btf:sched_switch+sys_enter+sys_exit")
    reason = (
        "needs tracepoint sk_data_ready (Linux 6.3): without it, the time until a client sends "
        "cannot be told from a slow request"
    )
    return MeasurementState("slowest_requests", None, "off", reason)


def _queues(arrival: Optional[str], unix_unread: bool) -> MeasurementState:
    rests_on = "tp_btf:sys_exit+sched_switch"
    if arrival and unix_unread:
        return _on("queue_high_water", f"{arrival}+{rests_on}")
    if arrival:
        reason = (
            "receive queues of TCP only: this kernel does not count the unread bytes of Unix "
            "sockets"
        )
        return MeasurementState("queue_high_water", f"{arrival}+{rests_on}", "degraded", reason)
    reason = "send queues only: needs tracepoint sk_data_ready (Linux 6.3)"
    return MeasurementState("queue_high_water", rests_on, "degraded", reason)


def _accept_queue(
    arrival: Optional[str], has_tcp_states: bool
) -> Tuple[MeasurementState, MeasurementState, MeasurementState]:
    if arrival:
        return (
            _on("accept_queue", arrival),
            _accept_wait(arrival, has_tcp_states),
            _on("refused_connects", TRACEPOINTS),
        )
    reason = "needs tracepoint sk_data_ready (Linux 6.3)"
    return (
        MeasurementState(
            "accept_queue", "sock_diag", "degraded", f"read once per interval: {reason}"
        ),
        MeasurementState("accept_wait", None, "off", reason),
        # They are counted at listeners, which are followed only with their queues.
        MeasurementState("refused_connects", None, "off", reason),
    )


def _accept_wait(arrival: str, has_tcp_states: bool) -> MeasurementState:
    if has_tcp_states:
        return _on("accept_wait", f"{arrival}+tp_btf:inet_sock_set_state+sys_exit")
    return MeasurementState(
        "accept_wait",
        f"{arrival}+tp_btf:sys_exit",
        "degraded",
        "Unix connections only: needs tracepoint inet_sock_set_state",
    )
