"""Calls whose number in the table is above 63 are counted as the others are.

The table has no such call yet. So some that are in it get such a number, in the programs' options
and in the reader alike; a second observer beside it has the numbers as they are.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

import pytest

from tests.kernel.actor import Caller
from tests.kernel.at_rest import wait_until_at_rest
from udsprobe.kernel.objects.btf import Btf
from udsprobe.kernel.proc.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.observe.live_observer import ObserverOptions
from udsprobe.observe.observation import Observer
from udsprobe.sample import CallCounts

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

# No program compares these by their numbers.
MOVED = ("READ", "WRITE", "SENDTO", "SOCKETPAIR", "PPOLL")
CALLS = 23


@pytest.fixture
def actor() -> Iterator[Caller]:
    with Caller() as made:
        yield made


def chosen(pid: int) -> List[Chosen]:
    found = Procfs().process(pid)
    assert found is not None
    return [Chosen(pid, found.start_ticks, "selector", "test")]


def begun(pid: int) -> Observer:
    return Observer(chosen(pid), ObserverOptions(1.0, follow=True))


def begun_with_calls_moved(pid: int, monkeypatch: pytest.MonkeyPatch) -> Observer:
    enum = Btf.enum

    def moved(btf: Btf, name: str) -> Dict[str, int]:
        values = enum(btf, name)
        if name == "call":
            top = enum(btf, "limits")["CALL_MAX"] - 1
            values.update({f"CALL_{call}": top - at for at, call in enumerate(MOVED)})
        return values

    with monkeypatch.context() as patched:
        patched.setattr(Btf, "enum", moved)
        return begun(pid)


def counted(rows: Tuple[CallCounts, ...]) -> Dict[object, object]:
    return {
        (row.name, row.abi, row.endpoint): (row.calls, row.errors, row.bytes, row.latency.count)
        for row in rows
    }


def test_calls_above_63_are_counted(actor: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_at_rest([actor.pid])
    with begun_with_calls_moved(actor.pid, monkeypatch) as moved, begun(actor.pid) as plain:
        for order in ("call", "thread", "fork"):
            actor.does(order, CALLS)
        wait_until_at_rest([actor.pid])
        moved.finish()
        plain.finish()
    assert moved.last.calls is not None and plain.last.calls is not None
    found = counted(moved.last.calls)
    assert found == counted(plain.last.calls)
    sent = sum(row.calls for row in moved.last.calls if row.name in ("sendto", "write"))
    assert sent >= 3 * CALLS
