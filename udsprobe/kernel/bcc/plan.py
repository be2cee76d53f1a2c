"""What each measurement rests on with strategy `bcc`, and what it does not do.

Pure. The names are those of `udsprobe.kernel.abilities.plan`, which has the other strategies.
"""

from __future__ import annotations

from typing import Tuple

from udsprobe.sample import MeasurementState

# In the order in which they are attached: what counts a call when it ends comes last.
EVENTS = (
    *("sched_process_exec", "sched_process_exit", "sched_process_fork", "sched_switch"),
    *("signal_deliver", "sys_enter", "sys_exit"),
)
_ON = {
    "syscalls": "raw_tp:sys_enter+sys_exit",
    "processes": "raw_tp:sched_process_fork+exec+exit",
    "listeners": "sock_diag",
    "cpu": "procfs+cgroupfs",
}
_DEGRADED = {
    "cpu_time": (
        "raw_tp:sched_switch",
        "only the system calls of the table: strategy bcc does not trace thread states",
    ),
    "in_flight": (
        "raw_tp:sys_enter+sys_exit",
        "without calls that began before attach: strategy bcc does not read sleeping threads",
    ),
    "served_requests": (
        "raw_tp:sys_exit",
        "only on connections that the targets accepted while observed, timed from the receive "
        "call: strategy bcc does not trace arrivals",
    ),
    "stages": (
        "raw_tp:sys_exit",
        "recv, app and send only, without the parts of app: strategy bcc does not trace "
        "arrivals or thread states",
    ),
    "accept_queue": (
        "sock_diag",
        "read once per interval: strategy bcc does not trace connections that enter a queue",
    ),
    "verdict": (
        "accept_queue+processes",
        "descriptors and accept queues only: strategy bcc does not measure what requests spend "
        "their time on",
    ),
}
_OFF = {
    "thread_time": "thread states",
    "loops": "thread states",
    "cpu_holders": "other processes on the CPUs",
    "waits": "who wakes threads",
    "slowest_requests": "thread states and the calls of single requests",
    "accept_wait": "connections that enter a queue",
    "refused_connects": "refused connections",
    "connects": "connect destinations",
    "upstream_requests": "connections that targets open",
    "connections": "single connections",
    "queue_high_water": "connection queues",
    "io_uring": "io_uring operations",
}
# In the order of plan.measurements().
_NAMES = (
    *("syscalls", "cpu_time", "thread_time", "loops", "cpu_holders", "waits"),
    *("in_flight", "processes"),
    *("served_requests", "stages", "slowest_requests", "listeners", "accept_queue", "accept_wait"),
    *("refused_connects", "connects", "upstream_requests", "connections", "queue_high_water"),
    *("io_uring", "cpu", "verdict"),
)


def bcc_measurements() -> Tuple[MeasurementState, ...]:
    """The state of every measurement; the same on each kernel."""
    return tuple(map(_state, _NAMES))


def _state(name: str) -> MeasurementState:
    if name in _ON:
        return MeasurementState(name, _ON[name], "on", None)
    if name in _DEGRADED:
        rests_on, reason = _DEGRADED[name]
        return MeasurementState(name, rests_on, "degraded", reason)
    return MeasurementState(name, None, "off", f"strategy bcc does not trace {_OFF[name]}")
