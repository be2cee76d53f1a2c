"""Two samples make a report: counts, ratios, what is not measured, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import samples
from tests.unit.samples import OTHER, TCP, UNIX, UNIX_DGRAM, call, in_flight, listener, sample
from udsprobe.model.difference import report
from udsprobe.model.report import Backlog, Report, Syscall
from udsprobe.sample import Sample


def between(first: Sample, last: Sample) -> Report:
    return report(samples.observation(), first, last)


def rows_by_key(shown: Report) -> Dict[Tuple[str, str], Syscall]:
    assert shown.syscalls is not None
    return {(row.name, row.transport): row for row in shown.syscalls}


def test_window_has_the_wall_clocks_start_and_the_monotonic_length() -> None:
    window = between(sample(0, unix_s=0.5), sample(2.5, unix_s=9_999.0)).window
    assert (window.start, window.duration_s) == ("1970-01-01T00:00:00.500+00:00", 2.5)


def test_host_and_probe_come_from_the_observation() -> None:
    shown = between(*samples.busy_pair())
    fixed = samples.observation()
    assert (shown.version, shown.host.kernel, shown.host.cpus) == ("0.1.0", "6.18.44", 2)
    assert (shown.probe.strategy, shown.probe.attach_ms) == ("tracepoint", 120.5)
    assert [each.name for each in shown.probe.measurements] == [
        each.name for each in fixed.measurements
    ]
    assert shown.probe.measurements[1].rests_on is None


def test_rows_are_the_difference_of_their_own_key() -> None:
    first = sample(calls=(call("read", UNIX, [1_000] * 3), call("read", TCP, [1_000])))
    last = sample(
        1,
        calls=(
            call("read", TCP, [1_000, 3_000_000]),
            call("read", UNIX, [1_000] * 10, errors={"EAGAIN": 4}),
        ),
    )
    rows = rows_by_key(between(first, last))
    assert rows["read", "unix"].calls == 7
    assert rows["read", "unix"].errors == {"EAGAIN": 4}
    assert rows["read", "unix"].bytes == 700
    assert rows["read", "unix"].wall_us == rows["read", "unix"].cpu_us == 7.0
    assert rows["read", "tcp"].calls == 1
    assert rows["read", "tcp"].slow_us == rows["read", "tcp"].wall_us == 3_000.0
    assert rows["read", "tcp"].cpu_us == 0.0
    assert rows["read", "tcp"].latency_us.max == 3_000.0


def test_abi_and_socket_type_have_rows_of_their_own() -> None:
    last = sample(
        1,
        calls=(
            call("sendto", UNIX, [500]),
            call("sendto", UNIX_DGRAM, [500] * 2),
            call("sendto", UNIX, [500] * 3, abi="compat"),
        ),
    )
    rows = between(sample(), last).syscalls
    assert rows is not None
    assert [(row.socket_type, row.abi, row.calls) for row in rows] == [
        ("stream", "compat", 3),
        ("dgram", "native", 2),
        ("stream", "native", 1),
    ]


def test_rows_are_sorted_by_calls_then_name() -> None:
    last = sample(
        1,
        calls=(
            call("writev", UNIX, [500]),
            call("close", UNIX, [500]),
            call("read", UNIX, [500] * 2),
        ),
    )
    rows = between(sample(), last).syscalls
    assert rows is not None
    assert [row.name for row in rows] == ["read", "close", "writev"]


def test_idle_rows_are_dropped_and_waiting_ones_kept() -> None:
    idle = (call("read", UNIX, [500]), call("accept4", UNIX, [500]))
    waiting = (
        in_flight("accept4", UNIX),
        in_flight("epoll_pwait", OTHER, tid=1),
        in_flight("epoll_pwait", OTHER, tid=2),
    )
    rows = rows_by_key(between(sample(calls=idle), sample(1, calls=idle, in_flight=waiting)))
    assert set(rows) == {("accept4", "unix"), ("epoll_pwait", "other")}
    assert rows["accept4", "unix"].in_flight == 1
    assert rows["epoll_pwait", "other"].in_flight == 2
    assert rows["epoll_pwait", "other"].calls == 0
    assert rows["epoll_pwait", "other"].latency_us.count == 0


def test_in_flight_is_none_when_it_is_not_measured() -> None:
    last = sample(1, calls=(call("read", UNIX, [500]),), in_flight=None)
    assert rows_by_key(between(sample(), last))["read", "unix"].in_flight is None


def test_unmeasured_is_none_everywhere() -> None:
    shown = between(samples.unmeasured_sample(), samples.unmeasured_sample(1))
    assert shown.syscalls is None
    assert shown.listeners is None
    assert shown.requests.served is None
    assert shown.requests.upstream is None
    assert shown.requests.syscalls_per_request is None
    assert shown.probe.bpf_cpu_pct is None
    assert (shown.verdict, shown.findings, shown.time) == (None, None, None)
    assert (shown.connections, shown.connections_total) == (None, None)


@pytest.mark.parametrize("field", ["calls", "syscalls_by_name", "served"])
@pytest.mark.parametrize("missing", ["first", "last"])
def test_measured_in_one_sample_only_is_not_measured(field: str, missing: str) -> None:
    first, last = samples.busy_pair()
    unmeasured: Dict[str, Any] = {field: None}
    if missing == "first":
        first = replace(first, **unmeasured)
    else:
        last = replace(last, **unmeasured)
    requests, syscalls = between(first, last).requests, between(first, last).syscalls
    assert (syscalls is None) == (field == "calls")
    assert (requests.served is None) == (field == "served")
    assert (requests.syscalls_per_request is None) == (field != "calls")


def test_served_requests_and_their_system_calls() -> None:
    requests = between(*samples.busy_pair()).requests
    assert requests.served is not None
    assert (requests.served.count, requests.served.rate_per_s) == (1_000, 100.0)
    assert requests.served.latency_us.mean == 2_499.5
    assert requests.syscalls_per_request is not None
    assert requests.syscalls_per_request.total == 3.4
    assert list(requests.syscalls_per_request.by_syscall.items()) == [
        ("read", 1.6),
        ("writev", 1.0),
        ("epoll_pwait", 0.5),
        ("accept4", 0.3),
    ]


def test_system_calls_per_request_keep_four_digits() -> None:
    last = sample(
        1, served=samples.served([500] * 3), syscalls_by_name={"read": 20_000, "close": 1}
    )
    per_request = between(sample(), last).requests.syscalls_per_request
    assert per_request is not None
    assert per_request.by_syscall == {"read": 6_667.0, "close": 0.3333}


def test_no_request_has_no_system_calls_per_request() -> None:
    requests = between(sample(), sample(1, syscalls_by_name={"read": 9})).requests
    assert requests.served is not None
    assert (requests.served.count, requests.served.rate_per_s) == (0, 0.0)
    assert requests.syscalls_per_request is None


def test_own_cost_and_losses() -> None:
    first = sample(probe=samples.probe(events_seen=5, lost_missed=2, lost_map_full=1))
    last = sample(
        2,
        probe=samples.probe(
            events_seen=105,
            events_counted=90,
            lost_map_full=4,
            lost_ring_full=7,
            lost_missed=2,
            cpu_ns=100_000_000,
            bpf_cpu_ns=30,
            bpf_measured_ns=1_000,
            rss_bytes=7,
        ),
    )
    probe = between(first, last).probe
    assert probe.self_cpu_pct == pytest.approx(1.0)
    assert probe.bpf_cpu_pct == pytest.approx(3.0)
    assert (probe.events_seen, probe.events_counted, probe.rss_bytes) == (100, 90, 7)
    lost = probe.events_lost
    assert (lost.map_full, lost.ring_full, lost.missed) == (3, 7, 0)


def test_bpf_cost_is_none_while_it_was_not_measured() -> None:
    last = sample(1, probe=samples.probe(bpf_cpu_ns=10, bpf_measured_ns=0))
    assert between(sample(), last).probe.bpf_cpu_pct is None
    nothing = samples.probe(bpf_cpu_ns=None)
    assert between(sample(probe=nothing), last).probe.bpf_cpu_pct is None


def test_a_window_without_length_has_no_rates() -> None:
    _, last = samples.busy_pair()
    shown = between(sample(10.0), last)
    assert shown.window.duration_s == 0.0
    assert shown.probe.self_cpu_pct is None
    assert shown.requests.served is not None
    assert (shown.requests.served.count, shown.requests.served.rate_per_s) == (1_000, None)


def test_targets_are_those_of_the_last_sample() -> None:
    gone = samples.target(pid=1, state="exited", cmdline=None, fds_open=None, fds_limit=None)
    shown = between(sample(), sample(1, targets=(gone,), targets_exited=3))
    assert shown.targets_exited == 3
    (target,) = shown.targets
    assert (target.pid, target.state, target.cmdline) == (1, "exited", None)
    assert (target.fds.open, target.fds.limit) == (None, None)


def only_backlog(**changes: Any) -> Backlog:
    shown = between(sample(), sample(1, listeners=(listener(**changes),)))
    assert shown.listeners is not None
    return shown.listeners[0].backlog


@pytest.mark.parametrize(
    ("requested", "effective", "somaxconn", "clamped", "equals"),
    [
        (511, 128, 128, True, True),
        (128, 128, 128, False, True),
        (64, 64, 128, False, False),
        (None, 128, 128, False, True),
        (None, 64, 128, False, False),
        (511, 128, None, False, None),
        (-1, 128, 128, True, True),
        (511, 128, 4096, False, False),
    ],
)
def test_backlog_names_what_clamped_it(
    requested: Optional[int],
    effective: int,
    somaxconn: Optional[int],
    clamped: bool,
    equals: Optional[bool],
) -> None:
    shown = only_backlog(
        backlog_requested=requested, backlog_effective=effective, somaxconn=somaxconn
    )
    assert shown.requested == requested
    assert shown.effective == effective
    assert shown.clamped_by == ("net.core.somaxconn" if clamped else None)
    assert shown.equals_somaxconn is equals


def test_listener_depth_is_held_against_backlog_plus_one() -> None:
    shown = between(sample(), sample(1, listeners=(listener(pids=None),))).listeners
    assert shown is not None
    assert (shown[0].depth.now, shown[0].depth.max, shown[0].depth.limit) == (97, None, 129)
    assert shown[0].pids is None
    assert shown[0].accepted is None


def shrunk(field: str) -> Tuple[Sample, Sample]:
    first, last = samples.busy_pair()
    return replace(first, **{field: getattr(last, field)}), replace(
        last, **{field: getattr(first, field)}
    )


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("calls", r"(read|writev|accept4|epoll_pwait)/\w+ calls"),
        ("syscalls_by_name", r"syscalls_by_name\[\w+\]"),
        ("served", "served count"),
        ("monotonic_ns", "monotonic_ns"),
        ("probe", "probe cpu_ns"),
    ],
)
def test_a_counter_that_goes_backwards_is_refused_by_name(field: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"counter {named} went backwards"):
        between(*shrunk(field))


@pytest.mark.parametrize("field", ["bytes", "wall_ns", "cpu_ns", "slow_ns"])
def test_a_row_that_shrinks_in_one_field_is_refused(field: str) -> None:
    row = call("read", UNIX, [500])
    more: Dict[str, Any] = {field: 10**9}
    first = sample(calls=(replace(row, **more),))
    last = sample(1, calls=(row,))
    with pytest.raises(ValueError, match=f"read/unix {field} went backwards"):
        between(first, last)


def test_an_errno_that_shrinks_is_refused() -> None:
    first = sample(calls=(call("read", UNIX, [500], errors={"EAGAIN": 1}),))
    last = sample(1, calls=(call("read", UNIX, [500]),))
    with pytest.raises(ValueError, match=r"read/unix errors\[EAGAIN\] went backwards: 1 to 0"):
        between(first, last)


histories = st.lists(
    st.tuples(
        st.sampled_from(["read", "writev"]),
        st.sampled_from([UNIX, TCP, OTHER]),
        st.integers(0, 10**10),
        st.sampled_from([None, "EAGAIN", "EPIPE"]),
    ),
    max_size=60,
)
History = List[Tuple[str, Any, int, Optional[str]]]


def after(history: History, at_s: float) -> Sample:
    rows = []
    for name, endpoint in {(each[0], each[1]) for each in history}:
        mine = [each for each in history if each[:2] == (name, endpoint)]
        errors: Dict[str, int] = {}
        for *_, failed in mine:
            if failed:
                errors[failed] = errors.get(failed, 0) + 1
        rows.append(call(name, endpoint, [each[2] for each in mine], errors=errors))
    names = [each[0] for each in history]
    return sample(
        at_s,
        calls=tuple(rows),
        syscalls_by_name={name: names.count(name) for name in set(names)},
        served=samples.served([each[2] for each in history if each[0] == "writev"]),
    )


def counts(shown: Report) -> Dict[Tuple[str, ...], int]:
    flat: Dict[Tuple[str, ...], int] = {}
    for (name, transport), row in rows_by_key(shown).items():
        flat[name, transport, "calls"] = row.calls
        flat[name, transport, "bytes"] = row.bytes
        flat[name, transport, "timed"] = row.latency_us.count
        flat[name, transport, "wall_ns"] = round(row.wall_us * 1_000)
        flat[name, transport, "cpu_ns"] = round((row.cpu_us or 0.0) * 1_000)
        flat[name, transport, "slow_ns"] = round(row.slow_us * 1_000)
        for errno, failed in row.errors.items():
            flat[name, transport, "errors", errno] = failed
    assert shown.requests.served is not None
    flat["served",] = shown.requests.served.count
    return {key: count for key, count in flat.items() if count}


@settings(deadline=None)
@given(histories, st.integers(0, 60), st.integers(0, 60))
def test_intervals_add_up_to_the_whole(history: History, cut: int, other_cut: int) -> None:
    a, b, c = (
        after(history[:length], at_s)
        for at_s, length in enumerate((*sorted((cut, other_cut)), len(history) + 60))
    )
    parts = counts(between(a, b)), counts(between(b, c))
    whole = counts(between(a, c))
    assert whole == {
        key: sum(part.get(key, 0) for part in parts) for key in set(parts[0]).union(parts[1])
    }
