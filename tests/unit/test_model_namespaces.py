"""Namespaces of a window, and whose drops were overflows."""

from __future__ import annotations

from typing import Optional

import pytest

from tests.unit import samples
from udsprobe.kernel.proc.namespace_files import tcp_counters
from udsprobe.model.difference import report
from udsprobe.model.sockets.namespace_rows import namespace_rows

NETNS = 4026531840


def listener(inode: int, drops: int) -> object:
    return samples.listener(
        transport="tcp", inode=inode, netns=NETNS, queue=samples.queue(drops=drops)
    )


@pytest.mark.parametrize(
    ("drops", "listen_drops", "listen_overflows", "expected"),
    [
        ([5], 5, 5, [5]),
        ([5], 5, 3, [3]),
        ([0], 4, 4, [0]),
        ([5], 6, 6, [None]),  # somebody else's listener dropped too
        ([5, 2], 7, 7, [None, None]),
        ([5, 0], 5, 4, [4, 0]),
        ([210], 0, 0, [0]),  # of TCP_DEFER_ACCEPT
        ([210], 7, 7, [None]),  # or some of these, or none
        ([210, 7], 7, 7, [None, None]),
    ],
)
def test_overflows_are_told_where_there_is_no_doubt(
    drops: list[int],
    listen_drops: int,
    listen_overflows: int,
    expected: list[Optional[int]],
) -> None:
    first = samples.sample(listeners=(), namespaces=(samples.namespace(),))
    last = samples.sample(
        1.0,
        listeners=tuple(listener(at, count) for at, count in enumerate(drops, 1)),
        namespaces=(
            samples.namespace(listen_drops=listen_drops, listen_overflows=listen_overflows),
        ),
    )
    rows = report(samples.observation(), first, last).listeners
    assert rows is not None
    assert [row.overflows for row in rows] == expected


@pytest.mark.parametrize(("listen_drops", "expected"), [(0, [0, 0]), (7, [7, 5]), (300, [210, 5])])
def test_packets_that_tcp_defer_accept_drops_are_no_connections(
    listen_drops: int, expected: list[int]
) -> None:
    """Apache's listeners have it: its sockets count one for each connection."""
    first = samples.sample(listeners=(), namespaces=(samples.namespace(),))
    last = samples.sample(
        1.0,
        listeners=(listener(1, 210), listener(2, 5)),
        namespaces=(samples.namespace(listen_drops=listen_drops),),
    )
    rows = report(samples.observation(), first, last).listeners
    assert rows is not None
    assert [row.drops for row in rows] == expected


def test_counters_are_of_the_window() -> None:
    first = samples.sample(namespaces=(samples.namespace(listen_drops=3, syncookies_sent=7),))
    last = samples.sample(1.0, namespaces=(samples.namespace(listen_drops=8, syncookies_sent=7),))
    rows = report(samples.observation(), first, last).namespaces
    assert rows is not None
    assert (rows[0].listen_drops, rows[0].syncookies_sent) == (5, 0)
    assert rows[0].tcp_abort_on_overflow is False


def test_a_namespace_that_came_later_has_no_counters_of_the_window() -> None:
    first = samples.sample(namespaces=())
    last = samples.sample(1.0, namespaces=(samples.namespace(listen_drops=8),))
    rows = report(samples.observation(), first, last).namespaces
    assert rows is not None
    assert (rows[0].listen_drops, rows[0].somaxconn) == (None, 128)


def test_counters_are_read_by_their_names() -> None:
    text = "TcpExt: A ListenDrops SyncookiesSent\nTcpExt: 1 22 3\nIpExt: X\nIpExt: 9\n"
    assert tcp_counters(text) == {"ListenDrops": 22, "SyncookiesSent": 3}
    assert tcp_counters("") == {}


def test_limits_of_buffers_are_as_they_are_now() -> None:
    hidden = samples.namespace(wmem_max=None, tcp_rmem=None)
    rows = namespace_rows(samples.sample(), samples.sample(1.0, namespaces=(hidden,)))
    assert rows is not None
    assert (rows[0].wmem_max, rows[0].wmem_default, rows[0].rmem_max) == (None, 212_992, 212_992)
    assert (rows[0].rmem_default, rows[0].max_dgram_qlen) == (212_992, 10)
    assert (rows[0].tcp_wmem, rows[0].tcp_rmem) == ([4096, 16_384, 4_194_304], None)
