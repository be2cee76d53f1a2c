"""From rounds to figures: pairs within a round, against nothing and the empty pair."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from scripts.bench.cost.figures import added_over, interval_of_median, of_tool, spread
from scripts.bench.cost.loads import wrk_p99_us, wrk_rate
from scripts.bench.cost.tools import Account, read_bpftrace, read_perf, read_table


def rounds(name: str, *values: Optional[float]) -> List[Dict[str, Any]]:
    account = vars(Account())
    return [
        {"round": at, "figures": {name: value}, "made": {}, "account": account}
        for at, value in enumerate(values)
        if value is not None
    ]


def test_what_is_added_is_of_the_same_round() -> None:
    name = "ns_per_socket_call"
    figures = of_tool(
        {
            "nothing": rounds(name, 100.0, 200.0, 100.0),
            "empty": rounds(name, 150.0, 250.0, 150.0),
            "udsprobe": rounds(name, 250.0, 350.0, None),
        },
        "udsprobe",
    )
    assert figures[f"{name}_added"]["median"] == 150.0
    assert figures[f"{name}_over_empty"]["median"] == 3.0
    assert figures[f"{name}_over_empty_of_rounds"]["rounds"] == 2


def test_requests_lost_are_a_share_of_the_bare_round() -> None:
    name = "requests_per_s"
    seen = {"nothing": rounds(name, 100.0, 50.0), "udsprobe": rounds(name, 90.0, 45.0)}
    assert of_tool(seen, "udsprobe")["requests_lost_pct"]["median"] == pytest.approx(10.0)


def test_calls_that_were_not_counted() -> None:
    one = rounds("ns_per_socket_call", 1.0)[0]
    one["made"] = {"sendto": 5, "recvfrom": 5, "getppid": 2}
    one["account"] = vars(Account({"sendto": 5, "recvfrom": 3}, lost=1))
    figures = of_tool({"nothing": [], "strace": [one]}, "strace")
    assert (figures["calls_made"], figures["calls_not_counted"]) == (10, 2)
    assert figures["events_told_lost"] == 1


def test_spread_of_one_value() -> None:
    assert spread([3.0])["median"] == spread([3.0])["three_quarters"] == 3.0


@pytest.mark.parametrize(
    ("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (20, 5, 14), (24, 6, 17)]
)
def test_the_interval_of_a_median_is_between_two_values(count: int, low: int, high: int) -> None:
    # 6th and 15th of 20, 7th and 18th of 24: the tables of the sign test.
    values = [float(value) for value in reversed(range(count))]
    assert interval_of_median(values) == {"low": low, "high": high}


def test_what_one_tool_adds_of_what_another_does() -> None:
    name = "ns_per_socket_call"
    seen = {
        "nothing": rounds(name, 100.0, 200.0),
        "udsprobe": rounds(name, 150.0, 350.0),
        "syscount": rounds(name, 200.0, 300.0),
    }
    assert added_over(seen, "udsprobe", "syscount", name) == {
        "median": 1.0,
        "low": 0.5,
        "high": 1.5,
    }
    assert added_over(seen, "udsprobe", "bpftrace", name) is None


def test_tables_of_other_tools_are_read() -> None:
    strace = " 34.24    0.006858           5      1152           sendto\n"
    assert read_table(strace, name_at=-1, calls_at=3).calls == {"sendto": 1152}
    perf = "   sendto              7296      0    16.719     0.002\nLOST 3 events!\n"
    assert read_perf(perf) == Account({"sendto": 7296}, lost=3)
    bpftrace = "@calls[44]: 12\n@calls[45]: 11\n"
    assert read_bpftrace(bpftrace) == Account({"sendto": 12, "recvfrom": 11}, lost=0)


def test_wrk_is_read() -> None:
    said = "    99%    1.25ms\nRequests/sec:  12345.67\n"
    assert (wrk_rate(said), wrk_p99_us(said)) == (12345.67, 1250.0)
