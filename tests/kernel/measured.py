"""Which measurement each kernel test is about, and what this kernel makes of it.

A test of a measurement that a kernel does not have, or only in part, is
skipped there with the reason which that measurement states.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Dict, Mapping, Optional

from udsprobe.errors import KernelCannotError
from udsprobe.kernel.abilities.features import kernel_features
from udsprobe.kernel.abilities.plan import SKIPS, measurements, programs
from udsprobe.kernel.bcc.plan import bcc_measurements
from udsprobe.kernel.kernel_facts import kernel_facts
from udsprobe.sample import MeasurementState

# By file or by test; the test goes before the file.
MEASURED: Mapping[str, str] = {
    "test_calls": "syscalls",
    "test_calls::test_served_requests_are_the_turns_made": "served_requests",
    "test_calls::test_calls_per_request_add_up": "served_requests",
    "test_calls_attached::test_a_thread_asleep_all_the_time_is_one_in_flight": "in_flight",
    "test_calls_attached::test_a_call_that_began_before_is_counted_and_has_no_latency": "syscalls",
    "test_interrupted": "syscalls",
    "test_lifecycle::test_what_a_target_becomes_is_followed": "processes",
    "test_lifecycle::test_no_follow_leaves_children_alone": "processes",
    "test_thread_time": "thread_time",
    "test_thread_time::test_cpu_time_is_the_scheduler_s": "cpu_time",
    "test_stages": "stages",
    "test_rest_of_requests": "stages",
    "test_accept_queue": "accept_queue",
    "test_accept_queue_workers": "accept_queue",
    "test_accept_queue_names": "refused_connects",
    "test_accept_queue::test_connects_to_a_full_queue_are_refused": "refused_connects",
    "test_accept_queue::test_the_wait_is_from_established_to_accepted": "accept_wait",
    "test_accept_queue::test_connections_queued_before_us_wait_since_we_came": "accept_wait",
    "test_listeners": "listeners",
    "test_connects": "connects",
    "test_cpu": "cpu",
    "test_loops": "loops",
    "test_loops::test_who_holds_the_cpu_is_named": "cpu_holders",
    "test_loops::test_targets_hold_each_other_s_cpu": "cpu_holders",
    "test_queues": "queue_high_water",
    "test_strategies": "syscalls",
    "test_uring": "io_uring",
    "test_verdict": "verdict",
    "test_upstream": "upstream_requests",
    "test_lookups": "upstream_requests",
    "test_inherited": "served_requests",
    "test_waits": "waits",
    "test_waits_bound": "waits",
    "test_waits_runtimes": "waits",
    "test_replies": "syscalls",
    "test_nagle": "connections",
    "test_connections": "connections",
    "test_faults_account": "syscalls",
    "test_faults_target::test_socket_memory_used_again": "upstream_requests",
    "test_faults_target::test_a_target_that_forks_again_and_again": "processes",
}
# What they compare is exact even where the measurement as a whole is not.
HOLDS_WHEN_DEGRADED = frozenset({"served_requests", "thread_time", "processes"})


def measurement_of(module: str, test: str) -> Optional[str]:
    """The measurement that a test is about.

    Args:
        module: the file's name without `.py`.
        test: the function's name.
    """
    return MEASURED.get(f"{module}::{test}", MEASURED.get(module))


def absence(measurement: str) -> Optional[str]:
    """Why this kernel cannot pass a test of a measurement; None when it can."""
    state = states_here().get(measurement)
    if state is None or state.state == "on":
        return None
    if state.state == "degraded" and measurement in HOLDS_WHEN_DEGRADED:
        return None
    if state.reason == SKIPS:
        return None
    return f"{measurement} is {state.state} on this kernel: {state.reason}"


def unreliable(measurement: str) -> Optional[str]:
    """Why a test may fail here though it passes most of the time; None: it may not."""
    state = states_here().get(measurement)
    reason = None if state is None else state.reason
    return reason if reason is not None and reason.endswith(SKIPS) else None


@cache
def states_here() -> Dict[str, MeasurementState]:
    """The measurements by name; none where probes cannot be loaded at all."""
    strategy = os.environ.get("UDSPROBE_STRATEGY", "auto")
    if strategy == "bcc":
        return {state.name: state for state in bcc_measurements()}
    if strategy == "auto":
        # Which one that is, only loading tells.
        return {state.name: state for state in kernel_facts()[0].measurements}
    try:
        features = kernel_features()
    except KernelCannotError:
        return {}
    functions = strategy == "fentry" and bool(features.call_functions)
    attached = programs(strategy, features.events)
    found = measurements(
        attached,
        sleeping_calls=features.sleeping_calls,
        unix_unread=features.unix_unread,
        preemptible=features.preemptible or (functions and features.preempts),
        functions=functions,
    )
    return {state.name: state for state in found}
