"""What each measurement rests on, and what this kernel makes of it.

Pure: the outcome of loading goes in, the states of `probe.measurements` come
out. A measurement that nothing carries is `off` with a reason, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Tuple

from udsprobe.sample import MeasurementState

NOT_BUILT = "not measured in this version"


@dataclass(frozen=True)
class EventProgram:
    """A program that runs on a kernel event.

    Attributes:
        name: of the function in `bpf/tracepoint.bpf.c`, and of the tracepoint.
        required: without it the strategy is of no use.
    """

    name: str
    required: bool

    @property
    def type_name(self) -> str:
        """What the kernel's BTF holds if and only if the tracepoint exists."""
        return f"btf_trace_{self.name}"


EVENT_PROGRAMS = (
    EventProgram("sched_process_fork", True),
    EventProgram("sched_process_exec", True),
    EventProgram("sched_process_exit", True),
    EventProgram("sched_switch", True),
    EventProgram("sched_wakeup", True),
    # Linux kernel commit 40e0b0908142 "net/sock: Introduce trace_sk_data_ready()" (in v6.3)
    EventProgram("sk_data_ready", False),
    EventProgram("inet_sock_set_state", False),
    EventProgram("sys_enter", True),
    EventProgram("sys_exit", True),
)


def measurements(attached: FrozenSet[str]) -> Tuple[MeasurementState, ...]:
    """The state of every measurement.

    Args:
        attached: names of the event programs that are live.
    """
    return (
        _on("syscalls", "tp_btf:sys_enter+sys_exit"),
        _on("cpu_time", "tp_btf:sched_switch"),
        _on("thread_time", "tp_btf:sched_switch+sched_wakeup+sys_enter+sys_exit"),
        _on("in_flight", "iter:task"),
        _on("processes", "tp_btf:sched_process_fork+exec+exit"),
        *_requests("sk_data_ready" in attached),
        _on("listeners", "sock_diag+iter:task_file"),
        *_accept_queue("sk_data_ready" in attached, "inet_sock_set_state" in attached),
        _on("connects", "tp_btf:sys_exit"),
        _on("upstream_requests", "tp_btf:sys_enter+sys_exit"),
        _on("connections", "tp_btf:sys_exit+iter:bpf_map_elem"),
        MeasurementState("verdict", None, "off", NOT_BUILT),
    )


def _on(name: str, rests_on: str) -> MeasurementState:
    return MeasurementState(name, rests_on, "on", None)


def _requests(has_arrival: bool) -> Tuple[MeasurementState, MeasurementState]:
    if has_arrival:
        return (
            _on("served_requests", "tp_btf:sys_exit+sk_data_ready"),
            _on("stages", "tp_btf:sys_exit+sk_data_ready"),
        )
    reason = "this kernel tells nobody when bytes arrive"
    return (
        MeasurementState(
            "served_requests",
            "tp_btf:sys_exit",
            "degraded",
            f"a request is timed from its receive call: {reason}",
        ),
        MeasurementState(
            "stages", "tp_btf:sys_exit", "degraded", f"without accept_wait and recv_wait: {reason}"
        ),
    )


def _accept_queue(
    has_arrival: bool, has_tcp_states: bool
) -> Tuple[MeasurementState, MeasurementState, MeasurementState]:
    if has_arrival:
        return (
            _on("accept_queue", "tp_btf:sk_data_ready"),
            _accept_wait(has_tcp_states),
            _on("refused_connects", "tp_btf:sys_enter+sys_exit"),
        )
    reason = "this kernel tells nobody when a connection enters a queue"
    return (
        MeasurementState(
            "accept_queue", "sock_diag", "degraded", f"read once an interval: {reason}"
        ),
        MeasurementState("accept_wait", None, "off", reason),
        # They are counted at listeners, which are followed only with their queues.
        MeasurementState("refused_connects", None, "off", reason),
    )


def _accept_wait(has_tcp_states: bool) -> MeasurementState:
    if has_tcp_states:
        return _on("accept_wait", "tp_btf:sk_data_ready+inet_sock_set_state+sys_exit")
    return MeasurementState(
        "accept_wait",
        "tp_btf:sk_data_ready+sys_exit",
        "degraded",
        "Unix connections only: this kernel tells nobody when a TCP connection is established",
    )
