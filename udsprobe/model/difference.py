"""Two samples of one observation → the report of the time between them.

Knows `sample` and `report`; reads no clock and nothing from the system. What
either sample did not measure is None in the report, never 0.
"""

from __future__ import annotations

from datetime import datetime, timezone
from math import floor, log10
from typing import List, Optional

from udsprobe.model.code.kinds import with_kinds
from udsprobe.model.code.stacks import stacks
from udsprobe.model.code.stages import with_stages
from udsprobe.model.counters import (
    grown,
    grown_by_key,
    grown_if_measured,
    percent,
)
from udsprobe.model.report import (
    EventsLost,
    Host,
    Listener,
    Measurement,
    Probe,
    ProgramCost,
    Report,
    Requests,
    Served,
    SyscallsPerRequest,
    Wait,
    WholeRequest,
    Window,
)
from udsprobe.model.requests.hops import asked_by_servers, hops
from udsprobe.model.requests.outermost import of_outermost
from udsprobe.model.requests.served_by import latency_by_process, served_by
from udsprobe.model.requests.served_requests import served_requests
from udsprobe.model.requests.whole_authors import with_authors
from udsprobe.model.requests.whole_requests import sampled_requests, slowest_requests
from udsprobe.model.sockets.connection_rows import connection_rows, upstream_rows
from udsprobe.model.sockets.listener_rows import connect_rows, listener_rows
from udsprobe.model.sockets.namespace_rows import namespace_rows, with_overflows
from udsprobe.model.sockets.syscall_rows import syscall_rows
from udsprobe.model.sockets.traffic_rows import traffic_rows
from udsprobe.model.threads.cpu_use import cpu_use
from udsprobe.model.threads.exits import exit_rows
from udsprobe.model.threads.starts import start_rows
from udsprobe.model.threads.target_rows import SettledRows, target_rows
from udsprobe.model.threads.thread_time import thread_time
from udsprobe.model.threads.waits import waits
from udsprobe.model.threads.waits_now import waits_now
from udsprobe.sample import Observation, ProbeReading, Sample

_NS_PER_S = 1_000_000_000
_SIGNIFICANT_DIGITS = 4


def report(
    observation: Observation,
    first: Sample,
    last: Sample,
    settled: Optional[SettledRows] = None,
) -> Report:
    """The report of the window from `first` to `last`.

    Verdict and findings are None here: `udsprobe.rules` judges the report.

    Args:
        settled: of the reports before this one; it makes them cheaper and changes none.

    Raises:
        UnsoundError: a counter went backwards; the message names it.
    """
    listeners = _listeners(first, last)
    waited, waiting = waits(first, last), waits_now(last)
    return Report(
        version=observation.version,
        host=_host(observation, last),
        window=_window(first, last),
        probe=_probe(observation, first, last),
        targets=target_rows(first, last, settled),
        targets_exited=last.targets_exited,
        verdict=None,
        findings=None,
        time=thread_time(first, last),
        requests=_requests(first, last, listeners, [] if waited is None else waited.rows),
        syscalls=syscall_rows(first, last),
        listeners=listeners,
        namespaces=namespace_rows(first, last),
        connects=connect_rows(first, last),
        connections=connection_rows(first, last),
        connections_total=last.connections_open,
        cpu=cpu_use(first, last),
        stacks=with_kinds(with_stages(stacks(first, last), first, last), first, last),
        waits=None if waited is None else waited.rows,
        waits_total=None if waited is None else waited.total,
        waits_now=None if waiting is None else waiting.rows,
        waits_now_total=None if waiting is None else waiting.total,
        locks=None if waited is None else waited.locks,
        traffic=traffic_rows(first, last),
        exits=exit_rows(first, last),
        starts=start_rows(first, last),
    )


def _listeners(first: Sample, last: Sample) -> Optional[List[Listener]]:
    rows = listener_rows(first, last)
    return None if rows is None else with_overflows(rows, namespace_rows(first, last) or [])


def _elapsed_ns(first: Sample, last: Sample) -> int:
    return grown("monotonic_ns", last.monotonic_ns, first.monotonic_ns)


def _window(first: Sample, last: Sample) -> Window:
    start = datetime.fromtimestamp(first.unix_s, tz=timezone.utc)
    return Window(
        start=start.isoformat(timespec="milliseconds"),
        duration_s=_elapsed_ns(first, last) / _NS_PER_S,
        is_first=first.sequence == 0,
    )


def _host(observation: Observation, last: Sample) -> Host:
    files = last.open_files
    return Host(
        kernel=observation.kernel,
        arch=observation.arch,
        cpus=observation.cpus,
        hostname=observation.hostname,
        file_max=None if files is None else files.max,
        files_open=None if files is None else files.open,
    )


def _probe(observation: Observation, first: Sample, last: Sample) -> Probe:
    start, end = first.probe, last.probe
    cpu_ns = grown("probe cpu_ns", end.cpu_ns, start.cpu_ns)
    bpf_cpu_ns = grown_if_measured("bpf_cpu_ns", end.bpf_cpu_ns, start.bpf_cpu_ns)
    measured_ns = grown_if_measured("bpf_measured_ns", end.bpf_measured_ns, start.bpf_measured_ns)
    return Probe(
        strategy=observation.strategy,
        measurements=_measurements(observation),
        attach_ms=observation.attach_ms,
        self_cpu_pct=percent(cpu_ns, _elapsed_ns(first, last)),
        bpf_cpu_pct=percent(bpf_cpu_ns, measured_ns),
        rss_bytes=end.rss_bytes,
        events_seen=grown("events_seen", end.events_seen, start.events_seen),
        events_counted=grown("events_counted", end.events_counted, start.events_counted),
        events_lost=_events_lost(first, last),
        missed_by_program=grown_by_key("missed", end.missed_by_program, start.missed_by_program),
        turned_away=grown("turned_away", end.turned_away, start.turned_away),
        unread_messages=grown("unread_messages", end.unread_messages, start.unread_messages),
        unplaced_failures=grown_if_measured(
            "unplaced_failures", end.unplaced_failures, start.unplaced_failures
        ),
        turned_away_by_map=grown_by_key(
            "turned_away_by_map", end.turned_away_by_map, start.turned_away_by_map
        ),
        programs=_programs(start, end, measured_ns),
        maps_bytes=end.maps_bytes,
        calls_left=grown_if_measured("calls_left", end.calls_left, start.calls_left),
        detail=observation.detail,
    )


def _programs(
    start: ProbeReading, end: ProbeReading, measured_ns: Optional[int]
) -> Optional[List[ProgramCost]]:
    if end.bpf_ns_by_program is None or end.bpf_runs_by_program is None:
        return None
    spent = grown_by_key("bpf_ns", end.bpf_ns_by_program, start.bpf_ns_by_program or {})
    runs = grown_by_key("bpf_runs", end.bpf_runs_by_program, start.bpf_runs_by_program or {})
    return [
        ProgramCost(
            name=name,
            runs=runs.get(name, 0),
            ns_per_run=spent.get(name, 0) / runs[name] if runs.get(name) else None,
            cpu_pct=percent(spent.get(name, 0), measured_ns),
        )
        for name in sorted(end.bpf_ns_by_program)
    ]


def _measurements(observation: Observation) -> List[Measurement]:
    return [
        Measurement(name=each.name, rests_on=each.rests_on, state=each.state, reason=each.reason)
        for each in observation.measurements
    ]


def _events_lost(first: Sample, last: Sample) -> EventsLost:
    start, end = first.probe, last.probe
    return EventsLost(
        map_full=grown("lost_map_full", end.lost_map_full, start.lost_map_full),
        ring_full=grown("lost_ring_full", end.lost_ring_full, start.lost_ring_full),
        missed=grown("lost_missed", end.lost_missed, start.lost_missed),
    )


def _requests(
    first: Sample, last: Sample, listeners: Optional[List[Listener]], waited: List[Wait]
) -> Requests:
    by_process = served_by(first, last)
    elapsed_s = _elapsed_ns(first, last) / _NS_PER_S
    chain = hops(by_process, listeners, last.targets)
    asked = asked_by_servers(by_process or [], listeners, last.targets)
    served = of_outermost(
        served_requests(first, last, elapsed_s),
        chain or [],
        by_process or [],
        asked,
        latency_by_process(first, last),
        elapsed_s,
    )
    return Requests(
        served=served,
        upstream=upstream_rows(first, last),
        syscalls_per_request=_syscalls_per_request(served, first, last),
        served_by=by_process,
        hops=chain,
        slowest=_with_authors(slowest_requests(first, last), waited, first),
        sampled=_with_authors(sampled_requests(first, last), waited, first),
    )


def _with_authors(
    rows: Optional[List[WholeRequest]], waited: List[Wait], first: Sample
) -> Optional[List[WholeRequest]]:
    return None if rows is None else with_authors(rows, waited, first.unix_s)


def _syscalls_per_request(
    served: Optional[Served], first: Sample, last: Sample
) -> Optional[SyscallsPerRequest]:
    if first.syscalls_by_name is None or last.syscalls_by_name is None:
        return None
    made = grown_by_key("syscalls_by_name", last.syscalls_by_name, first.syscalls_by_name)
    if served is None or served.count == 0:
        return None
    return SyscallsPerRequest(
        total=_significant(sum(made.values()) / served.count),
        by_syscall={name: _significant(calls / served.count) for name, calls in made.items()},
    )


def _significant(value: float) -> float:
    if value == 0:
        return 0.0
    return round(value, max(0, _SIGNIFICANT_DIGITS - 1 - floor(log10(value))))
