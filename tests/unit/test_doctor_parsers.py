"""What doctor reads: values, command lines, units, Caddy's JSON; by fuzzing, anything at all."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.doctor_facts import healthy, nginx
from udsprobe.doctor import unit_file
from udsprobe.doctor.addresses import loopback_port
from udsprobe.doctor.caddy_config import hops
from udsprobe.doctor.examine import examine
from udsprobe.doctor.nginx import values as nginx_values
from udsprobe.doctor.nginx.config import destinations, read, target
from udsprobe.doctor.nginx.values import StartedWith, started_with
from udsprobe.kernel.abilities.lockdown import lockdown_of
from udsprobe.kernel.proc.limits import identity_of
from udsprobe.servers.caddy import configured
from udsprobe.servers.nginx_files import Broken, statements
from udsprobe.servers.processes import unit_of
from udsprobe.servers.systemd import UnitFiles, drop_in_folders
from udsprobe.servers.target_files import TargetFiles, Unreadable


@pytest.mark.parametrize(
    ("text", "value"),
    [("64k", 65536), ("1M", 1 << 20), ("17", 17), ("1g", None), ("", None), ("k", None)],
)
def test_sizes(text: str, value: Optional[int]) -> None:
    assert nginx_values.size_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("75", 75_000),
        ("4s", 4_000),
        ("500ms", 500),
        ("1m30s", 90_000),
        ("1m 30s", 90_000),
        ("1h", 3_600_000),
        ("soon", None),
        ("5x", None),
        ("", None),
    ],
)
def test_times(text: str, value: Optional[int]) -> None:
    assert nginx_values.milliseconds(text) == value


MASTER = b"nginx: master process "


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [
        (MASTER + b"/usr/sbin/nginx", StartedWith()),
        (MASTER + b"nginx -c /a/b.conf -p /a", StartedWith("/a/b.conf", "/a")),
        (MASTER + b"nginx -c/a/b.conf", StartedWith("/a/b.conf")),
        (MASTER + b"nginx -c /my dir/b.conf -q", StartedWith("/my dir/b.conf")),
        (
            MASTER + b"nginx -g daemon off; master_process on; -p /x",
            StartedWith(None, "/x", "daemon off; master_process on;"),
        ),
        (MASTER + b"nginx -c a.conf\0\0\0", StartedWith("a.conf")),
        (b"nginx\0-c\0/a b.conf\0-g\0daemon off;\0", StartedWith("/a b.conf", None, "daemon off;")),
        (b"", StartedWith()),
    ],
)
def test_how_nginx_was_started(cmdline: bytes, expected: StartedWith) -> None:
    assert started_with(cmdline) == expected


def test_what_nginxs_program_says_of_itself() -> None:
    program = b"\0nginx/1.22.1\0 --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf --x\0"
    assert nginx_values.version_of(program) == (1, 22, 1)
    assert nginx_values.version_of(b"openresty/1.25.3.1") == (1, 25, 3)
    assert nginx_values.version_of(b"none") is None
    assert nginx_values.built_with(program, "conf-path") == "/etc/nginx/nginx.conf"
    assert nginx_values.built_with(program, "pid-path") is None


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("http://app", "app"),
        ("http://app/x?y", "app"),
        ("http://127.0.0.1:3000/", "127.0.0.1:3000"),
        ("http://unix:/run/a.sock:/uri", "unix:/run/a.sock"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
        ("grpc://[::1]:50051", "[::1]:50051"),
        ("http://user:word@app/", "app"),
        ("http://", None),
        ("unix:", None),
    ],
)
def test_what_a_pass_names(argument: str, expected: Optional[str]) -> None:
    assert target(argument) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:80", 80),
        ("localhost", 80),
        ("[::1]:8080", 8080),
        (":9000", 9000),
        ("10.0.0.1:80", None),
        ("app", None),
        ("127.0.0.1:0", None),
        ("127.0.0.1:99999", None),
        ("unix:/run/a", None),
        ("$backend:80", None),
    ],
)
def test_which_addresses_stay_here(address: str, expected: Optional[int]) -> None:
    assert loopback_port(address) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a {", 1),
        (b"a { b; }\n}", 2),
        (b"a b", 1),
        (b"a { b }", 1),
        (b"a { ; }", 1),
        (b"{ a; }", 1),
        (b"events {}\nworker_processes 1\nworker_rlimit_nofile 9;", 2),
        (b"events { worker_connections 5\n multi_accept on; }", 1),
        (b'a "b', 1),
    ],
)
def test_broken_nginx_configurations_name_their_line(text: bytes, line: int) -> None:
    with pytest.raises(Broken) as caught:
        statements(text, "x.conf")
    assert caught.value.line == line


def test_statements_with_quotes_comments_lua_and_lines() -> None:
    text = b"""
# a comment; { }
log_format main '$remote_addr "$request"'
                '{ $status }';
map $a $b { default ""; '' "x y"; "~^re{2}$" z; }
content_by_lua_block { if a then ngx.say("}") end }
server_name a
            server;
"""
    parsed = statements(text, "x.conf")
    assert [one.name for one in parsed] == [
        "log_format",
        "map",
        "content_by_lua_block",
        "server_name",
    ]
    assert parsed[0].args == ("main", '$remote_addr "$request"', "{ $status }")
    assert [(one.name, one.args) for one in parsed[1].block or ()][:2] == [
        ("default", ("",)),
        ("", ("x y",)),
    ]


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_configuration_or_broken(raw: bytes) -> None:
    try:
        parsed = statements(raw, "x.conf")
    except Broken as error:
        assert error.line >= 1
        return
    destinations(read(parsed))


VOCABULARY = """
http stream server location upstream proxy_pass listen keepalive keepalive_timeout map
proxy_set_header Connection close include if http://a unix:/a default $b down backup 5
backlog=x backlog=9999999999999999999 rcvbuf= 80 [::]: : least_conn zone ''
proxy_http_version 1.1 worker_connections events { } ; ; {
"""
WORDS = st.sampled_from(VOCABULARY.split())


@settings(deadline=None)
@given(st.lists(WORDS, max_size=60))
def test_any_directives_in_any_order_are_looked_at(words: List[str]) -> None:
    try:
        statements(" ".join(words).encode(), "x.conf")
    except Broken:
        return
    examine(healthy(nginx=(nginx(" ".join(words)),)))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_command_line(cmdline: bytes) -> None:
    started_with(cmdline)
    started_with(MASTER + cmdline)
    nginx_values.version_of(cmdline)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_value_or_none(text: str) -> None:
    nginx_values.number(text)
    nginx_values.size_bytes(text)
    nginx_values.milliseconds(text)
    loopback_port(text)
    target(text)
    unit_file.together([text, text])
    unit_file.limit(text)
    identity_of(text)
    lockdown_of(text)
    configured(text.split())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["apps", "http", "servers", "routes", "handle", "handler", "dial"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@settings(deadline=None)
@given(JSON)
def test_any_json_has_hops_or_none(value: Any) -> None:
    hops(value)
    hops({"apps": {"http": {"servers": value}}})
    hops({"apps": {"http": {"servers": {"s": {"listen": value, "routes": value}}}}})


def test_caddys_hops_at_any_depth() -> None:
    proxy = {"handler": "reverse_proxy", "upstreams": [{"dial": "127.0.0.1:1"}, {"dial": 5}, {}]}
    routes = [{"handle": [{"handler": "subroute", "routes": [{"handle": [proxy]}]}]}]
    config = {"apps": {"http": {"servers": {"s": {"listen": [":80"], "routes": routes}}}}}
    assert [(one.server, one.listens, one.dial) for one in hops(config)] == [
        ("s", (":80",), "127.0.0.1:1")
    ]
    deep: Any = proxy
    for _ in range(5000):
        deep = [deep]
    assert hops({"apps": {"http": {"servers": {"s": {"routes": deep}}}}}) == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["caddy", "run", "--config", "/a/Caddyfile"], ("/a/Caddyfile", "caddyfile")),
        (["caddy", "run", "--config=/a/b.json"], ("/a/b.json", None)),
        (["caddy", "run", "-c", "/x", "-a", "caddyfile"], ("/x", "caddyfile")),
        (["caddy", "run"], ("Caddyfile", "caddyfile")),
        (["caddy", "run", "--config"], ("", None)),
    ],
)
def test_how_caddy_was_started(arguments: List[str], expected: Tuple[str, Optional[str]]) -> None:
    assert configured(arguments) == expected


UNIT = """
[Unit]
Description=x \\
  LimitNOFILE=1
# LimitNOFILE=2
[Service]
LimitNOFILE=1024:4096
Sockets=a.socket b.socket
[Socket]
ListenStream=/run/a.sock
ListenStream=80
Backlog=100
"""


def test_unit_files_and_their_drop_ins() -> None:
    alone = unit_file.together([UNIT])
    assert alone.limit_nofile == (1024, 4096)
    assert alone.sockets == ("a.socket", "b.socket")
    assert (alone.listens, alone.backlog) == (("/run/a.sock", "80"), 100)
    drop_in = "[Socket]\nListenStream=\nListenStream=/run/b.sock\nBacklog=7\n[Service]\n"
    both = unit_file.together([UNIT, drop_in + "LimitNOFILE=infinity\n"])
    assert (both.listens, both.backlog, both.limit_nofile) == (("/run/b.sock",), 7, (None, None))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("65536", (65536, 65536)), ("64K", (65536, 65536)), ("1:2:3", None), ("x", None), ("", None)],
)
def test_limits_as_systemd_writes_them(text: str, expected: Any) -> None:
    assert unit_file.limit(text) == expected


def test_where_drop_ins_lie() -> None:
    assert drop_in_folders("app-web@1.service") == (
        "app-web@1.service.d",
        "app-web@.service.d",
        "app-.service.d",
        "service.d",
    )


def test_units_from_their_directories(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    for folder in (etc / "app.service.d", lib / "app.service.d"):
        folder.mkdir(parents=True)
    (lib / "app.service").write_text("[Service]\nLimitNOFILE=1\n")
    (lib / "app.service.d" / "10.conf").write_text("[Service]\nLimitNOFILE=2\n")
    (etc / "app.service.d" / "10.conf").write_text("[Service]\nLimitNOFILE=3\n")
    (etc / "app.service.d" / "20.txt").write_text("[Service]\nLimitNOFILE=4\n")
    (etc / "one@.service").write_text("[Service]\nLimitNOFILE=5\n")
    (etc / "loop.service").symlink_to("loop.service")
    files = UnitFiles(TargetFiles(os.getpid()), (str(etc), str(lib)))
    found = files.settings("app.service")
    assert found is not None
    assert (found[0], found[1].limit_nofile) == (f"{lib}/app.service", (3, 3))
    template = files.settings("one@two.service")
    assert template is not None and template[1].limit_nofile == (5, 5)
    assert files.settings("absent.service") is None
    assert files.settings("loop.service") is None


def test_the_unit_of_a_cgroup() -> None:
    assert unit_of({"": "/system.slice/app.service"}) == "app.service"
    assert unit_of({"": "/user.slice/user@1000.service/app.slice/x.service"}) == "x.service"
    assert unit_of({"cpu": "/a.service", "name=systemd": "/b.service/sub"}) == "b.service"
    assert unit_of({"": "/user.slice/session-1.scope"}) is None


def test_lockdown_levels() -> None:
    assert lockdown_of("none [integrity] confidentiality\n") == "integrity"
    assert lockdown_of("") is None and lockdown_of(None) is None


STATUS = "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10\nCapEff:\t{}\n"


def test_whose_permissions_count() -> None:
    plain = identity_of(STATUS.format("0000000000000000"))
    assert plain is not None
    assert (plain.uid, plain.gid, plain.gids, plain.overrides) == (4, 8, (9, 10), False)
    root = identity_of(STATUS.format("0000000000000002"))
    assert root is not None and root.overrides
    assert identity_of("Uid:\t1\n") is None


def test_files_that_are_no_files(tmp_path: Path) -> None:
    files = TargetFiles(os.getpid())
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(b"x" * 11)
    (tmp_path / "link").symlink_to(tmp_path / "long")
    for name, says in (
        ("fifo", "not a regular file"),
        ("absent", "does not exist"),
        ("", "not a regular file"),
        ("long", "longer than 10 bytes"),
        ("link", "longer than 10 bytes"),
        ("nul\0", "not a file name"),
    ):
        with pytest.raises(Unreadable, match=says):
            files.read(f"{tmp_path}/{name}", 10)
    assert files.read(str(tmp_path / "link"), 11).raw == b"x" * 11


def test_patterns_match_as_glob_does(tmp_path: Path) -> None:
    for name in ("a.conf", "b.conf", ".c.conf", "d.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "x.conf").write_text("")
    files = TargetFiles(os.getpid())
    for pattern in ("*.conf", "[ab].conf", ".*.conf", "s*/*.conf", "*/y", "?.conf"):
        expected = tuple(sorted(glob.glob(f"{tmp_path}/{pattern}")))
        assert files.matching(f"{tmp_path}/{pattern}") == expected
    assert files.matching("/absent") == ("/absent",)


def test_blocks_in_blocks_have_an_end() -> None:
    read(statements(b"a { " * 100 + b"}" * 100, "x.conf"))
    with pytest.raises(Broken, match="100 deep"):
        statements(b"a { " * 5000 + b"}" * 5000, "x.conf")
