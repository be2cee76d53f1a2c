"""Who works for the targets' requests some hops away, by real connections of this process."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

from tests.workloads.hop import Hop
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.tables import partner_chains
from udsprobe.kernel.tables.partner_chains import PartnerChains, tcp_pairs
from udsprobe.kernel.tables.silent_peers import End


@pytest.fixture(params=["unix", "tcp"])
def hops(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[List[Hop]]:
    """app → db ← other: the app and a stranger are clients of one database."""
    addresses = [str(tmp_path / name) if request.param == "unix" else free() for name in "dao"]
    database, own, others = addresses
    family = socket.AF_UNIX if request.param == "unix" else socket.AF_INET
    with ExitStack() as stack:
        found = [stack.enter_context(Hop(database))]
        for address in (own, others):
            found.append(stack.enter_context(Hop(address, database)))
            found[0].accepted()
        client = stack.enter_context(socket.socket(family))
        client.connect(own if request.param == "unix" else ("127.0.0.1", int(own)))
        found[1].accepted()
        yield found


def free() -> str:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_upstream_of_an_upstream_is_no_stranger_and_its_other_client_is(
    hops: List[Hop],
) -> None:
    """This process is the target: it is connected to the app only."""
    database, app, other = (hop.pid for hop in hops)
    chains, me = PartnerChains(Procfs()), os.getpid()
    assert chains.reached([database, other], [me], [app]) == {database}
    # Nobody in between is known: no connection of this process leads there.
    assert chains.reached([database, other], [me], []) == set()


def test_the_client_of_a_client_is_no_stranger(hops: List[Hop]) -> None:
    """The database is the target: this process asks the app, which asks it."""
    database, app, other = (hop.pid for hop in hops)
    reached = PartnerChains(Procfs()).reached([os.getpid(), other], [database], [app])
    assert reached == {os.getpid(), other}


def test_which_end_of_a_connection_accepted() -> None:
    here = b"\x7f\0\0\1"
    nobody = End(bytes(4), 0)
    rows = [
        ((End(bytes(4), 80), nobody), 1),
        ((End(here, 80), End(here, 40_000)), 2),
        ((End(here, 40_000), End(here, 80)), 3),
        ((End(here, 40_001), End(here, 5432)), 4),  # its other end is elsewhere
        ((End(here, 50_000), End(here, 50_001)), 5),  # nobody listens at either
        ((End(here, 50_001), End(here, 50_000)), 6),
    ]
    assert list(tcp_pairs(rows)) == [(3, 2)]


def test_who_holds_no_socket_costs_no_list_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel threads wait for CPUs as well, a new one each second."""
    listed: List[str] = []

    def listing() -> List[Tuple[int, int]]:
        listed.append("unix")
        return []

    monkeypatch.setattr(partner_chains, "_unix_pairs", listing)
    chains = PartnerChains(Procfs())
    with subprocess.Popen(["sleep", "30"]) as child:
        assert chains.reached([child.pid], [os.getpid()], []) == set()
        assert listed == []
        left, right = socket.socketpair()
        chains.reached([os.getpid()], [child.pid], [])
        assert listed == ["unix"]
        left.close()
        right.close()
        child.kill()
