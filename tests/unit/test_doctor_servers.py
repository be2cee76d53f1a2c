"""What doctor makes of units on disk, of sockets that nobody listens on, of kernels without BTF."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Optional, Tuple

import pytest

from tests.unit.doctor_facts import NETNS, healthy, listener, network, nginx, process
from udsprobe.doctor.examine import examine
from udsprobe.doctor.facts import ListenerFacts
from udsprobe.doctor.nginx.config import destinations
from udsprobe.host_facts import Identity
from udsprobe.kernel import kernel_facts
from udsprobe.kernel.abilities import features
from udsprobe.servers.endpoints import Endpoints
from udsprobe.servers.systemd import UnitFiles, units_of
from udsprobe.servers.target_files import TargetFiles

SERVICE = "[Service]\nLimitNOFILE=65536\nSockets=extra.socket\n"
SOCKET = "[Socket]\nListenStream=/run/app.sock\nBacklog=9999\n"
EXTRA = "[Socket]\nListenStream=127.0.0.1:80\n"


@pytest.fixture
def units(tmp_path: Path) -> UnitFiles:
    for name, text in (("app.service", SERVICE), ("app.socket", SOCKET), ("extra.socket", EXTRA)):
        (tmp_path / name).write_text(text)
    (tmp_path / "extra.socket.d").mkdir()
    (tmp_path / "extra.socket.d" / "b.conf").write_text("[Socket]\nBacklog=700\n")
    return UnitFiles(TargetFiles(os.getpid()), (str(tmp_path),))


def test_a_service_its_sockets_and_what_runs(units: UnitFiles, tmp_path: Path) -> None:
    services, sockets = units_of([process(unit="app.service"), process(pid=5)], units)
    assert [(one.name, one.main_pid, one.limit_nofile) for one in services] == [
        ("app.service", 4711, (65536, 65536))
    ]
    assert [(one.name, one.backlog) for one in sockets] == [
        ("app.socket", 9999),
        ("extra.socket", 700),
    ]
    held = listener(transport="unix", address="/run/app.sock", path="/run/app.sock", backlog=4096)
    facts = healthy(
        services=services,
        sockets=sockets,
        processes=(process(nofile_hard=4096),),
        listeners=(held, listener(host="127.0.0.1", address="127.0.0.1:80", backlog=511)),
    )
    found = {one.id: one for one in examine(facts)}
    assert set(found) == {"backlog-clamped", "backlog-not-applied", "unit-nofile-not-applied"}
    assert found["backlog-clamped"].places == (f"{tmp_path}/app.socket",)


def test_a_unit_that_cannot_be_read_is_an_error(units: UnitFiles, tmp_path: Path) -> None:
    (tmp_path / "bad.service").mkdir()
    units_of([process(unit="bad.service")], units)
    assert [(one.reason, one.path) for one in units.errors] == [
        ("unreadable", f"{tmp_path}/bad.service")
    ]


class Seen:
    """What `Namespaces` knows, without a kernel."""

    def __init__(self, *listeners: ListenerFacts, complete: bool) -> None:
        self.listeners: Tuple[ListenerFacts, ...] = listeners
        self.limits = (network(),)
        self.complete = complete

    def seen(self, netns: int) -> bool:
        return netns == NETNS

    def bound_to(self, _: object) -> Optional[ListenerFacts]:
        return self.listeners[0] if self.listeners else None


def endpoints(seen: Seen) -> Endpoints:
    return Endpoints(seen, {4711: "node", 1: "systemd"})  # type: ignore[arg-type]


CLIENT = process(pid=os.getpid(), identity=Identity(0, 0, (), True))


@pytest.mark.parametrize(
    ("listeners", "complete", "state", "kind"),
    [
        ((listener(pids=(1, 4711)),), True, "listening", "node"),
        ((listener(pids=(1,)),), True, "listening", None),
        ((listener(pids=None),), True, "listening", None),
        ((), True, "refusing", None),
        ((), False, "unknown", None),
    ],
)
def test_a_socket_file_and_who_listens(
    listeners: Any, complete: bool, state: str, kind: Any, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    found = endpoints(Seen(*listeners, complete=complete)).of(f"unix:{tmp_path}/s", CLIENT)
    assert (found.state, found.kind) == (state, kind)


@pytest.mark.parametrize(
    ("address", "host", "shown", "state"),
    [
        ("127.0.0.1:80", "127.0.0.1", "127.0.0.1:80", "listening"),
        ("127.0.0.1:80", "0.0.0.0", "0.0.0.0:80", "listening"),
        ("127.0.0.1", "::", "*:80", "listening"),
        ("127.0.0.1:80", "::", "[::]:80", "refusing"),
        ("127.0.0.1:80", "127.0.0.2", "127.0.0.2:80", "refusing"),
        ("[::1]:80", "::", "[::]:80", "listening"),
        ("[::1]:80", "0.0.0.0", "0.0.0.0:80", "refusing"),
        ("localhost:80", "127.0.0.1", "127.0.0.1:80", "listening"),
        ("localhost:80", "10.0.0.1", "10.0.0.1:80", "refusing"),
        ("10.0.0.1:80", "127.0.0.1", "127.0.0.1:80", "unknown"),
        ("$x:80", "127.0.0.1", "127.0.0.1:80", "unknown"),
        ("unix:/run/\ufffd", "127.0.0.1", "127.0.0.1:80", "unknown"),
    ],
)
def test_a_port_and_who_listens(address: str, host: str, shown: str, state: str) -> None:
    seen = Seen(listener(host=host, address=shown), complete=True)
    assert endpoints(seen).of(address, process(pid=os.getpid())).state == state


def test_a_client_elsewhere_is_not_judged() -> None:
    seen = Seen(complete=True)
    assert endpoints(seen).of("127.0.0.1:80", process(netns=5)).state == "unknown"


def test_http_and_stream_have_upstreams_of_their_own() -> None:
    text = (
        "http { upstream a { server 127.0.0.1:1; keepalive 1; } }"
        "stream { upstream a { server 127.0.0.1:2; } server { proxy_pass a; } }"
    )
    config = nginx(text).config
    assert config is not None and destinations(config) == ("127.0.0.1:2",)
    assert examine(healthy(nginx=(nginx(text),))) == ()


def test_a_kernel_without_types_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_facts, "missing_capabilities", list)
    monkeypatch.setattr(features, "KERNEL_BTF", tmp_path / "vmlinux")
    monkeypatch.setattr(kernel_facts, "KERNEL_BTF", tmp_path / "vmlinux")
    facts, unchecked = kernel_facts.kernel_facts()
    assert facts.strategies[0].state == "refused"
    assert "no type information (BTF)" in (facts.strategies[0].reason or "")
    assert (facts.measurements, facts.tracepoints, facts.btf_bytes) == ((), None, None)
    assert unchecked == ()
    assert [one.id for one in examine(healthy(kernel=facts))] == ["kernel-refuses"]
