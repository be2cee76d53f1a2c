"""doctor's rules: at, under and over each threshold, and by nginx's version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Tuple

import pytest

from tests.unit.doctor_facts import NETNS, healthy, listener, network, nginx, process
from udsprobe.doctor.examine import examine
from udsprobe.doctor.facts import (
    CaddyFacts,
    CaddyHop,
    ConfigError,
    Endpoint,
    Facts,
    ServiceUnit,
    SocketUnit,
)
from udsprobe.doctor.finding import reaches
from udsprobe.doctor.kernel_rules import kernel_findings
from udsprobe.host_facts import KernelFacts, Strategy
from udsprobe.kernel.abilities.plan import NO_OTHER_CALLS
from udsprobe.sample import MeasurementState


def ids(facts: Facts) -> List[str]:
    return [one.id for one in examine(facts)]


def test_nothing_is_wrong_with_a_healthy_host() -> None:
    assert ids(healthy()) == []
    assert ids(Facts()) == []


HOST = healthy().host
CLAMPED = listener(backlog=128, somaxconn=128)
LOW = network(somaxconn=128)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"host": replace(HOST, files_open=89_999)}, []),
        ({"host": replace(HOST, files_open=90_000)}, ["file-max-near-limit"]),
        ({"host": replace(HOST, threads=26_999)}, []),
        ({"host": replace(HOST, threads=27_000)}, ["threads-near-limit"]),
        ({"host": replace(HOST, threads=900, pid_max=1_000)}, ["threads-near-limit"]),
        ({"processes": (process(fds_open=921),)}, []),
        ({"processes": (process(fds_open=922),)}, ["nofile-near-limit"]),
        ({"processes": (process(fds_open=922, nofile_soft=None),)}, []),
        ({"listeners": (listener(depth_now=511),)}, []),
        ({"listeners": (listener(depth_now=512),)}, ["accept-queue-full"]),
        ({"listeners": (listener(backlog=4096),)}, []),
        ({"listeners": (CLAMPED,), "networks": (LOW,)}, ["somaxconn-low"]),
        ({"listeners": (listener(backlog=4),)}, ["backlog-short"]),
        ({"listeners": (listener(backlog=49),)}, ["backlog-short"]),
        ({"listeners": (listener(backlog=50),)}, []),
        (
            {"listeners": (listener(backlog=4, depth_now=5),)},
            ["accept-queue-full", "backlog-short"],
        ),
        ({"listeners": (listener(backlog=100, somaxconn=128),), "networks": (LOW,)}, []),
        ({"networks": (network(tcp_abort_on_overflow=1),)}, ["tcp-abort-on-overflow"]),
        ({"networks": (network(tcp_abort_on_overflow=1),), "listeners": ()}, []),
        ({"networks": (network(tcp_syncookies=0),)}, ["tcp-syncookies-off"]),
        ({"networks": (network(tcp_syncookies=2),)}, ["tcp-syncookies-always"]),
        ({"networks": (network(max_dgram_qlen=9),)}, ["max-dgram-qlen-low"]),
        ({"networks": (network(max_dgram_qlen=None, tcp_syncookies=None),)}, []),
    ],
)
def test_limits(changed: Any, expected: List[str]) -> None:
    assert ids(healthy(**changed)) == expected


@pytest.mark.parametrize(
    ("backlog", "somaxconn", "expected"),
    [
        (511, 4096, []),
        (510, 510, ["node-backlog-clamped"]),
        (511, 511, []),
        (128, 4096, []),
    ],
)
def test_nodes_backlog(backlog: int, somaxconn: int, expected: List[str]) -> None:
    facts = healthy(
        processes=(process(kind="node"),),
        listeners=(listener(backlog=backlog, somaxconn=somaxconn),),
        networks=(network(somaxconn=somaxconn),),
    )
    assert ids(facts) == expected


def kernel(**changed: Any) -> Facts:
    works = (Strategy("tracepoint", "works", None),)
    return healthy(kernel=KernelFacts(**{"strategies": works, **changed}))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (kernel(jit=0), ["bpf-jit-off"]),
        (kernel(lockdown="confidentiality"), ["kernel-lockdown"]),
        (kernel(lockdown="integrity"), []),
        (kernel(strategies=(Strategy("tracepoint", "refused", "EPERM"),)), ["kernel-refuses"]),
        (kernel(strategies=(Strategy("tracepoint", "untried", "not root"),)), []),
        (
            kernel(measurements=(MeasurementState("stages", "x", "degraded", "too old"),)),
            ["measurement-impaired"],
        ),
        (
            kernel(
                measurements=(
                    MeasurementState("verdict", None, "off", "not measured in this version"),
                    MeasurementState("syscalls", "x", "on", None),
                )
            ),
            [],
        ),
    ],
)
def test_kernels(facts: Facts, expected: List[str]) -> None:
    assert ids(facts) == expected


def test_what_a_strategy_tells_less_another_one_tells() -> None:
    reason = f"less: {NO_OTHER_CALLS}"
    facts = kernel(measurements=(MeasurementState("thread_time", "x", "degraded", reason),))
    (finding,) = kernel_findings(facts.kernel)
    assert [action.do for action in finding.actions] == ["attach with --strategy tracepoint"]


BARE = "http { upstream a { server x; } server { location / { proxy_pass http://a; } } }"
OFF = "http { upstream a { server x; keepalive 0; } server { proxy_pass http://a; } }"
OVERRIDDEN = (
    "http { upstream a { server x; keepalive 8; ip_hash; } server { proxy_http_version 1.1;"
    ' proxy_set_header Connection ""; proxy_pass http://a; } }'
)
KEPT_OLD_HTTP = "http { upstream a { server x; keepalive 8; } server { proxy_pass http://a; } }"


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        (BARE, (1, 29, 6), ["nginx-upstream-no-keepalive"]),
        (BARE, (1, 29, 7), []),
        (BARE, (1, 30, 0), []),
        (BARE, None, []),
        (OFF, (1, 29, 7), ["nginx-upstream-no-keepalive"]),
        (OFF, None, ["nginx-upstream-no-keepalive"]),
        (OVERRIDDEN, (1, 29, 6), ["nginx-keepalive-overridden"]),
        (OVERRIDDEN, (1, 29, 7), []),
        (KEPT_OLD_HTTP, (1, 29, 6), ["nginx-proxy-http-1-0"]),
        (KEPT_OLD_HTTP, (1, 29, 7), []),
        (KEPT_OLD_HTTP, None, []),
    ],
)
def test_nginxs_defaults_changed(text: str, version: Any, expected: List[str]) -> None:
    facts = healthy(nginx=(nginx(text, version=version),))
    assert ids(facts) == expected


def test_a_fault_in_hundreds_of_places_is_one_finding() -> None:
    places = " ".join("server {\n location / { proxy_pass http://a; } }" for _ in range(300))
    facts = healthy(nginx=(nginx(f"http {{ upstream a {{ server x; }} {places} }}"),))
    (finding,) = examine(facts)
    assert (len(finding.places), finding.places_total) == (5, 301)


KEPT = (
    "http { upstream a { server 127.0.0.1:3000; keepalive 8; %s } server { location / {"
    ' proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://a; } } }'
)


@pytest.mark.parametrize(
    ("idle", "kind", "expected"),
    [
        ("", "node", ["node-keepalive-race"]),
        ("keepalive_timeout 4s;", "node", []),
        ("keepalive_timeout 4999ms;", "node", []),
        ("keepalive_timeout 5s;", "node", ["node-keepalive-race"]),
        ("keepalive_timeout 1m;", "node", ["node-keepalive-race"]),
        ("", "other", []),
    ],
)
def test_whether_node_closes_before_nginx(idle: str, kind: str, expected: List[str]) -> None:
    end = Endpoint("127.0.0.1:3000", "listening", kind=kind, pid=5)
    server = nginx(KEPT % idle, endpoints={"127.0.0.1:3000": end})
    assert ids(healthy(nginx=(server,))) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Endpoint("127.0.0.1:3000", "listening"), []),
        (Endpoint("127.0.0.1:3000", "unknown"), []),
        (Endpoint("127.0.0.1:3000", "refusing"), ["nginx-upstream-unreachable"]),
        (Endpoint("127.0.0.1:3000", "listening", writable=False), ["nginx-socket-permissions"]),
    ],
)
def test_where_an_upstream_leads(end: Endpoint, expected: List[str]) -> None:
    server = nginx(KEPT % "", endpoints={end.address: end})
    assert ids(healthy(nginx=(server,))) == expected


def test_reuseport_of_a_unix_socket() -> None:
    text = "http { server { listen unix:/run/a.sock reuseport; } }"
    assert ids(healthy(nginx=(nginx(text),))) == ["nginx-reuseport-unix"]


@pytest.mark.parametrize(
    ("limit", "hard", "expected"),
    [
        ((1024, 65536), 65536, []),
        ((65536, 65536), 4096, ["unit-nofile-not-applied"]),
        ((1024, None), 4096, []),
        (None, 4096, []),
    ],
)
def test_a_units_descriptors(limit: Any, hard: int, expected: List[str]) -> None:
    unit = ServiceUnit("app.service", 4711, "/etc/systemd/system/app.service", limit)
    facts = healthy(services=(unit,), processes=(process(nofile_hard=hard),))
    assert ids(facts) == expected


@pytest.mark.parametrize(
    ("listens", "backlog", "in_force", "expected"),
    [
        ("/run/app.sock", 4096, 4096, []),
        ("/run/app.sock", 4097, 4096, ["backlog-clamped"]),
        ("/run/app.sock", 4096, 128, ["backlog-not-applied"]),
        ("/run/app.sock", None, 128, []),
        ("/run/other.sock", 9999, 128, []),
    ],
)
def test_a_socket_units_backlog(
    listens: str, backlog: Any, in_force: int, expected: List[str]
) -> None:
    held = listener(transport="unix", address="/run/app.sock", path="/run/app.sock", host=None)
    unit = SocketUnit("app.socket", "/etc/systemd/system/app.socket", (listens,), backlog)
    facts = healthy(sockets=(unit,), listeners=(replace(held, port=None, backlog=in_force),))
    assert ids(facts) == expected


@pytest.mark.parametrize("address", ["80", "0.0.0.0:80"])
def test_a_tcp_socket_unit(address: str) -> None:
    unit = SocketUnit("app.socket", "/x", (address,), 9999)
    held = listener(backlog=4096)
    assert ids(healthy(sockets=(unit,), listeners=(held,))) == ["backlog-clamped"]
    elsewhere = (replace(held, netns=NETNS + 1),)
    assert ids(healthy(sockets=(unit,), listeners=elsewhere)) == []


@pytest.mark.parametrize(
    ("dial", "netns", "expected"),
    [
        ("127.0.0.1:80", NETNS, ["caddy-loopback-hop"]),
        ("localhost:80", NETNS, ["caddy-loopback-hop"]),
        ("127.0.0.1:81", NETNS, []),
        ("10.0.0.7:80", NETNS, []),
        ("unix//run/app.sock", NETNS, []),
        ("{env.APP}:80", NETNS, []),
        ("127.0.0.1:80", NETNS + 1, []),
    ],
)
def test_caddys_hops(dial: str, netns: int, expected: List[str]) -> None:
    caddy = CaddyFacts(9, "/etc/caddy/x.json", (CaddyHop("a", (":90",), dial),), netns=netns)
    assert ids(healthy(caddy=(caddy,))) == expected


def test_configurations_that_are_not_known() -> None:
    errors: Tuple[ConfigError, ...] = (
        ConfigError("unreadable", "/a", "it does not exist"),
        ConfigError("broken", "/b", "braces do not match", 7),
        ConfigError("broken", "/c", "braces do not match", 8),
    )
    facts = healthy(caddy=(CaddyFacts(9, "/a", errors=errors),))
    assert ids(facts) == ["config-unreadable", "config-broken"]
    assert examine(facts)[1].places == ("/b:7", "/c:8")


def test_the_worst_comes_first_and_fail_on_counts_from_there() -> None:
    facts = healthy(
        networks=(network(max_dgram_qlen=1, tcp_syncookies=0),),
        listeners=(listener(depth_now=600),),
    )
    findings = examine(facts)
    assert [one.severity for one in findings] == ["critical", "warning", "info"]
    assert [reaches(findings[1:], each) for each in ("critical", "warning", "info", None)] == [
        False,
        True,
        True,
        False,
    ]
