"""Pauses after a reply has begun: compared beside the latencies that they are no part of."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from tests.unit import compared
from udsprobe.compare import compare
from udsprobe.compare.comparison import Comparison, Figure
from udsprobe.views.fields.compare_rows import rows

NAME = "reply_pauses_per_request"
Document = Dict[str, Any]


def pausing(
    found: Document, *served_by: Document, hops: Optional[List[Document]] = None
) -> Document:
    requests = {**found["requests"], "served_by": list(served_by), "hops": hops or []}
    return {**found, "requests": requests}


def server(pid: int, replies: int, paused_us: Optional[float]) -> Document:
    pieces = {"count": replies, "transfer_mean_us": paused_us, "paused_mean_us": paused_us}
    return {"pid": pid, "in_pieces": pieces}


def sides(a: List[Document], b: List[Document]) -> Comparison:
    return compare([compared.run(a)], [compared.run(b)])


def pauses(found: Comparison) -> Figure:
    (figure,) = [each for each in found.figures if each.name == NAME]
    return figure


def test_a_page_that_pauses_is_told_though_its_first_byte_comes_as_soon() -> None:
    before = [pausing(each, server(5, 0, None)) for each in compared.scattered(1)]
    after = [pausing(each, server(5, 5_000, 2e6)) for each in compared.scattered(2)]
    found = sides(before, after)
    figure = pauses(found)
    assert figure.a == 0.0 and figure.b is not None and 0.9e6 < figure.b < 1.1e6
    assert found.different
    assert "pauses after a reply has begun, per request 0 µs → " in found.summary
    assert "pauses in replies" in [row.label for row in rows(found.figures)]


def test_without_pauses_no_row_is_shown() -> None:
    side = [pausing(each, server(5, 100, 0.0)) for each in compared.scattered(1)]
    found = sides(side, side)
    assert pauses(found).exceeds_noise is False
    assert "pauses in replies" not in [row.label for row in rows(found.figures)]


def test_of_a_chain_those_of_the_outermost_server_count() -> None:
    chain = [{"pid": 5, "pids": [5]}, {"pid": 6, "pids": [6]}]
    each = pausing(compared.made(100), server(5, 100, 10.0), server(6, 100, 10.0), hops=chain)
    assert pauses(sides([each], [each])).a == 10.0


def test_where_they_are_not_measured_nothing_is_said_of_them() -> None:
    """As with detail light, and in documents of earlier versions."""
    without = pausing(compared.made(100), {"pid": 5, "in_pieces": None})
    earlier = pausing(compared.made(100), {"pid": 5})
    for document in (without, earlier):
        figure = pauses(sides([document], [document]))
        assert figure.a is None and figure.reason
