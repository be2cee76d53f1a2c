"""A chain of targets: a request counts once, where it comes in."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Tuple

import pytest

from tests.unit import ill
from tests.unit.test_rules import chain
from tests.unit.verdicts import node_served
from udsprobe.model.histogram import LATENCY_SLOTS, slot_of
from udsprobe.model.report import Hop, ServedBy
from udsprobe.model.requests.outermost import of_outermost
from udsprobe.sample import LatencyCounts
from udsprobe.views.text.report_text import latency_line, served_line


def row(pid: int, count: int, mean: float, **parts: float) -> ServedBy:
    told: Dict[str, float] = parts or {"cpu": 100.0}
    stages = replace(node_served().stages_mean_us, recv_wait=10.0, app=mean - 10)
    latency = ill.flat(count, mean)
    return replace(
        node_served(), pid=pid, count=count, latency_us=latency, stages_mean_us=stages,
        app_time_pct=told,
    )  # fmt: skip


def hop(pid: int, next_pids: List[int], *more: int) -> Hop:
    return Hop(pid, [pid, *more], "any", None, 100, 1.0, 1.0, 0.0, next_pids)


def test_what_one_hop_hands_on_is_no_request_of_its_own() -> None:
    """Two nginx workers, 6,300 requests together, and the Node behind them."""
    rows = [row(812, 4200, 300.0, cpu=100.0), row(813, 2100, 600.0, lock=100.0), row(9, 6300, 90.0)]
    hops = [hop(812, [9], 813), hop(9, [])]
    found = of_outermost(ill.served(12_600), hops, rows, {9: 6300}, {}, 2.0)
    assert found is not None
    assert (found.count, found.rate_per_s, found.latency_us.mean) == (6300, 3150.0, 400.0)
    assert found.latency_us.p50 is found.latency_us.p99 is None
    assert found.stages_us.recv_wait is not None and found.stages_us.recv_wait.mean == 10.0
    assert found.app_time_pct is not None and set(found.app_time_pct) == {"cpu", "lock"}
    assert abs(sum(found.app_time_pct.values()) - 100) < 1e-9
    assert served_line(found) == "served 6,300 · 3,150/s"
    assert latency_line(found).startswith("latency mean 400µs  (of the outermost hop")


def latencies(pid: int, *taken_us: int) -> Tuple[int, LatencyCounts]:
    slots = [0] * LATENCY_SLOTS
    for each in taken_us:
        slots[slot_of(1000 * each)] += 1
    counts = LatencyCounts(len(taken_us), 1000 * sum(taken_us), 1000 * max(taken_us), tuple(slots))
    return pid, counts


def test_percentiles_are_those_of_the_outermost_hop() -> None:
    rows = [row(812, 3, 300.0), row(813, 1, 900.0), row(9, 4, 90.0)]
    hops = [hop(812, [9], 813), hop(9, [])]
    known = dict([latencies(812, 200, 300, 400), latencies(813, 900), latencies(9, 1, 1, 1, 1)])
    found = of_outermost(ill.served(8), hops, rows, {9: 4}, known, 1.0)
    assert found is not None
    latency = found.latency_us
    assert (latency.count, latency.mean, latency.max) == (4, 450.0, 900.0)
    assert latency.p50 == pytest.approx(300, rel=0.032) and latency.p99 == pytest.approx(900, 0.032)
    assert "p50" in latency_line(found)


def test_a_hop_that_is_asked_from_both_sides_has_no_percentiles() -> None:
    rows = [row(8, 1, 200.0), row(9, 3, 90.0)]
    known = dict([latencies(8, 200), latencies(9, 80, 90, 100)])
    found = of_outermost(ill.served(4), [hop(8, [9]), hop(9, [])], rows, {9: 1}, known, 1.0)
    assert found is not None and found.count == 3
    assert found.latency_us.p50 is None


def test_nothing_changes_where_none_asks_another() -> None:
    served, rows = ill.served(900), [row(9, 900, 90.0)]
    assert of_outermost(served, [], rows, {}, {}, 1.0) is served
    assert of_outermost(served, [hop(9, []), hop(10, [])], rows, {}, {}, 1.0) is served
    assert of_outermost(None, [], rows, {}, {}, 1.0) is None


def test_of_those_that_ask_each_other_what_came_from_outside_counts() -> None:
    served, rows = ill.served(900), [row(9, 500, 90.0), row(10, 400, 90.0)]
    found = of_outermost(served, [hop(9, [10]), hop(10, [9])], rows, {9: 50, 10: 400}, {}, 1.0)
    assert found is not None and found.count == 450


def test_what_clients_ask_of_an_inner_hop_directly_counts() -> None:
    """A proxy hands 100 requests to a service that 900 others ask without it."""
    served, rows = ill.served(1100), [row(8, 100, 200.0), row(9, 1000, 90.0)]
    found = of_outermost(served, [hop(8, [9]), hop(9, [])], rows, {9: 100}, {}, 1.0)
    assert found is not None and found.count == 1000
    assert found.latency_us.mean == (100 * 200.0 + 900 * 90.0) / 1000


def test_what_the_workers_of_an_inner_hop_were_asked_is_taken_once() -> None:
    rows = [row(8, 100, 200.0), row(9, 60, 90.0), row(10, 40, 90.0)]
    found = of_outermost(ill.served(200), [hop(8, [9]), hop(9, [], 10)], rows, {9: 100}, {}, 1.0)
    assert found is not None and found.count == 100


def test_a_report_of_a_chain_still_has_a_verdict() -> None:
    assert chain(5000.0).requests.hops
