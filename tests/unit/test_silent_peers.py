"""Rows of /proc/net/tcp, as the kernel prints them."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from udsprobe.kernel.tables.silent_peers import End, tcp_rows

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid inode\n"
ROW = b"   0: %s %s 01 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 20 4 30 10 -1\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of such a machine")
def test_both_families() -> None:
    four = ROW % (b"0100007F:1F90", b"0100007F:C350", 77)
    six = ROW % (b"0" * 24 + b"01000000:0016", b"0000000000000000FFFF00000100007F:0017", 78)
    local = End(socket.inet_pton(socket.AF_INET, "127.0.0.1"), 8080)
    own = End(socket.inet_pton(socket.AF_INET6, "::1"), 22)
    assert dict(tcp_rows(HEAD + four + six)) == {
        (local, End(local.raw, 50000)): 77,
        (own, End(local.raw, 23)): 78,
    }


def test_a_connection_of_this_process() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        rows = dict(tcp_rows(Path("/proc/self/net/tcp").read_bytes()))
        local, remote = (
            End(socket.inet_aton(host), port)
            for host, port in (ours.getsockname(), ours.getpeername())
        )
        link = os.readlink(f"/proc/self/fd/{ours.fileno()}")
    assert link == f"socket:[{rows[local, remote]}]"


@pytest.mark.parametrize("text", [b"", HEAD, HEAD + b"cut", HEAD + b"1 2 3 4 5 6 7 8 9 x\n"])
def test_what_is_no_row(text: bytes) -> None:
    assert not list(tcp_rows(text))
