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
    # Linux kernel commit 40e0b0908142 "net/sock: Introduce trace_sk_data_ready()" (in v6.3)
    EventProgram("sk_data_ready", False),
    EventProgram("sys_enter", True),
    EventProgram("sys_exit", True),
)


def measurements(attached: FrozenSet[str]) -> Tuple[MeasurementState, ...]:
    """The state of every measurement.

    Args:
        attached: names of the event programs that are live.
    """
    return (
        MeasurementState("syscalls", "tp_btf:sys_enter+sys_exit", "on", None),
        MeasurementState("cpu_time", "tp_btf:sched_switch", "on", None),
        MeasurementState("in_flight", "iter:task", "on", None),
        MeasurementState("processes", "tp_btf:sched_process_fork+exec+exit", "on", None),
        _served_requests("sk_data_ready" in attached),
        MeasurementState("listeners", "sock_diag", "on", None),
        *(
            MeasurementState(name, None, "off", NOT_BUILT)
            for name in (
                "accept_queue",
                "accept_wait",
                "refused_connects",
                "stages",
                "upstream_requests",
                "thread_time",
                "connections",
                "verdict",
            )
        ),
    )


def _served_requests(has_arrival: bool) -> MeasurementState:
    if has_arrival:
        return MeasurementState("served_requests", "tp_btf:sys_exit+sk_data_ready", "on", None)
    return MeasurementState(
        "served_requests",
        "tp_btf:sys_exit",
        "degraded",
        "a request is timed from its receive call: this kernel tells nobody when bytes arrive",
    )
