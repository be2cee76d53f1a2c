"""Strategy `bcc`: what is missing is named in one line; else it is taken where it has to be."""

from __future__ import annotations

import json
import os
import platform
import socket
from pathlib import Path
from typing import Iterator

import pytest

from tests.kernel import measured
from tests.kernel.actor import Caller, sent
from tests.kernel.live import Ended, Live, answer
from udsprobe.kernel.bcc.library import bcc_is_here, has_headers
from udsprobe.kernel.bcc.plan import bcc_measurements

pytestmark = pytest.mark.root

WAITING = 3
# What hides the kernel's types from whoever runs in it.
WITHOUT_TYPES = [
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind /dev/null /sys/kernel/btf/vmlinux && exec "$@"',
    "sh",
]


@pytest.fixture
def works() -> None:
    if not bcc_is_here():
        pytest.skip("BCC, or the headers of this kernel, are not installed")


@pytest.fixture
def actor() -> Iterator[Caller]:
    with Caller() as made:
        yield made


def attach_bcc(pid: int) -> Ended:
    return answer(["attach", "--strategy", "bcc", "--duration", "1", "--json", "--pid", str(pid)])


def test_what_is_missing_is_one_line_with_its_packages() -> None:
    if bcc_is_here():
        pytest.skip("BCC and the headers of this kernel are installed")
    ended = attach_bcc(os.getpid())
    assert (ended.code, ended.out) == (4, "")
    slug = ended.line.partition("[")[2].partition("]")[0]
    assert slug in ("no-bcc", "no-kernel-headers")
    assert ("apt install python3-bpfcc" in ended.line) == (slug == "no-bcc")
    missing = not has_headers(platform.release())
    assert (f"linux-headers-{platform.release()}" in ended.line) == missing


@pytest.mark.usefixtures("works")
def test_without_types_auto_takes_it(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    argv = ["run", "--strategy", "auto", "--json", "--output", str(output), "--", "true"]
    ended = answer(argv, prefix=WITHOUT_TYPES)
    assert (ended.code, ended.err) == (0, "")
    probe = json.loads(output.read_text())["probe"]
    assert probe["strategy"] == "bcc"
    states = [(each["name"], each["state"]) for each in probe["measurements"]]
    assert states == [(each.name, each.state) for each in bcc_measurements()]


@pytest.mark.usefixtures("works")
def test_the_account_adds_up_and_a_child_is_followed(actor: Caller, tmp_path: Path) -> None:
    arguments = ["attach", "--strategy", "bcc", "--json", "--pid", str(actor.pid)]
    with Live(arguments, tmp_path) as live:
        calls = actor.does("call", 23) + actor.does("thread", 5) + actor.does("fork", 40)
        report = live.end().report
    assert sent(report) == calls
    probe = report["probe"]
    lost = sum(probe["events_lost"].values())
    assert probe["events_seen"] == probe["events_counted"] + lost
    assert probe["events_counted"] == sum(row["calls"] for row in report["syscalls"])
    assert (report["time"], report["connections"], report["connects"]) == (None, None, None)
    assert report["verdict"]["cause"] == "unknown"
    assert report["verdict"]["transport_share_pct"] is None


@pytest.mark.usefixtures("works")
def test_the_queue_is_as_deep_as_clients_wait(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(5)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(WAITING)]
        try:
            for client in clients:
                client.connect(path)
            report = attach_bcc(os.getpid()).report
        finally:
            for client in clients:
                client.close()
    (row,) = [row for row in report["listeners"] if row["address"] == path]
    assert (row["depth"]["now"], row["accepted"]) == (WAITING, None)


def test_the_tests_know_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would be run, and fail, where it measures nothing."""
    monkeypatch.setenv("UDSPROBE_STRATEGY", "bcc")
    measured.states_here.cache_clear()
    try:
        assert "strategy bcc" in (measured.absence("thread_time") or "")
        assert measured.absence("syscalls") is None
    finally:
        measured.states_here.cache_clear()
