"""`udsprobe doctor` on real Node, Caddy and other processes; what it needs and what it leaves."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.conftest import Require
from tests.kernel import doctor_hosts, servers
from tests.kernel.doctor_hosts import ROOT, about_servers, doctor
from tests.kernel.servers import Server
from tests.patience import PATIENCE_S

NODE = """
const server = require('http').createServer((_, reply) => reply.end('ok'));
server.listen(process.argv[2], '127.0.0.1');
"""
NGINX = """
upstream app { server 127.0.0.1:NODE; keepalive 4; IDLE }
server { listen 127.0.0.1:PORT; location / {
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://app; } }
"""
HOLDER = "import os, sys; [os.dup(0) for _ in range({})]; print(1, flush=True); sys.stdin.read()"


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


def node(require: Require, folder: Path, port: int, *wrapper: str) -> Server:
    script = folder / "app.js"
    script.write_text(NODE)
    argv = [*wrapper, require("node")["node"], str(script), str(port)]
    return Server(argv, ("127.0.0.1", port), folder / "node.log")


@pytest.mark.parametrize(
    ("idle", "expected"), [("", ["node-keepalive-race"]), ("keepalive_timeout 4s;", [])]
)
def test_nginx_that_keeps_longer_than_node(
    idle: str, expected: List[str], require: Require, folder: Path
) -> None:
    node_port, port = servers.free_port(), servers.free_port()
    names = {"PORT": str(port), "NODE": str(node_port), "IDLE": idle, "FOLDER": str(folder)}
    text = doctor_hosts.configuration("", "", NGINX, names)
    with node(require, folder, node_port) as app:
        nginx = doctor_hosts.start_nginx(require("nginx")["nginx"], folder, text, port)
        try:
            _, document, _ = doctor("--pid", nginx.pid, app.pid)
        finally:
            nginx.stop()
    assert about_servers(document) == expected
    (seen,) = [one for one in document["servers"] if one["kind"] == "node"]
    assert seen["pid"] == app.pid and "(backlog 511)" in seen["says"]


@pytest.mark.usefixtures("as_root")
def test_nodes_backlog_in_a_namespace_that_allows_less(require: Require, folder: Path) -> None:
    tools = require("unshare", "ip")
    script = 'ip link set lo up && echo 100 > /proc/sys/net/core/somaxconn && exec "$@"'
    wrapper = [tools["unshare"], "--net", "sh", "-c", script, "sh"]
    (folder / "app.js").write_text(NODE.replace("'127.0.0.1'", "'127.0.0.1', () => console.log(1)"))
    argv = [*wrapper, require("node")["node"], str(folder / "app.js"), "8000"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline()
        _, document, _ = doctor("--pid", process.pid)
    finally:
        process.terminate()
        process.wait()
    assert about_servers(document) == ["node-backlog-clamped"]


def caddy_json(first: int, second: int, dial: str, listen: str) -> str:
    proxy = {"handler": "reverse_proxy", "upstreams": [{"dial": dial}]}
    answer = {"handler": "static_response", "body": "x"}
    sites = {
        "front": {"listen": [f"127.0.0.1:{first}"], "routes": [{"handle": [proxy]}]},
        "back": {"listen": [listen], "routes": [{"handle": [answer]}]},
    }
    config: Dict[str, Any] = {"admin": {"disabled": True}, "apps": {"http": {"servers": sites}}}
    return json.dumps(config)


@pytest.fixture
def caddy(require: Require, folder: Path) -> Iterator[Any]:
    started: List[Server] = []

    def start(name: str, text: str, port: int) -> Server:
        (folder / name).write_text(text)
        argv = [require("caddy")["caddy"], "run", "--config", str(folder / name)]
        environment = {"env": require("env")["env"], "home": f"HOME={folder}"}
        wrapped = [environment["env"], environment["home"], *argv]
        started.append(Server(wrapped, ("127.0.0.1", port), folder / "caddy.log").__enter__())
        return started[-1]

    yield start
    for server in started:
        server.__exit__()


def test_a_chain_of_caddys_over_tcp(caddy: Any) -> None:
    front, back = servers.free_port(), servers.free_port()
    dial = f"127.0.0.1:{back}"
    server = caddy("c.json", caddy_json(front, back, dial, dial), front)
    _, document, _ = doctor("--pid", server.pid)
    assert about_servers(document) == ["caddy-loopback-hop"]
    (finding,) = [one for one in document["findings"] if one["id"] == "caddy-loopback-hop"]
    assert finding["subject"] == dial and "chain of Caddys" in finding["summary"]


def test_a_chain_of_caddys_over_a_unix_socket(caddy: Any, folder: Path) -> None:
    front = servers.free_port()
    path = f"unix/{folder}/b.sock"
    server = caddy("c.json", caddy_json(front, 0, path, path), front)
    _, document, _ = doctor("--pid", server.pid)
    assert about_servers(document) == []
    (folder / "c.json").write_text('{"apps": "secret')
    _, document, _ = doctor("--pid", server.pid)
    assert about_servers(document) == ["config-broken"] and "secret" not in str(document)


def test_a_caddyfile_is_read_by_caddy(caddy: Any) -> None:
    front, back = servers.free_port(), servers.free_port()
    text = (
        "{\n admin off\n}\n"
        f"http://127.0.0.1:{front} {{\n reverse_proxy localhost:{back}\n}}\n"
        f"http://127.0.0.1:{back} {{\n respond x\n}}\n"
    )
    server = caddy("Caddyfile", text, front)
    _, document, _ = doctor("--pid", server.pid)
    assert about_servers(document) == ["caddy-loopback-hop"]
    assert document["not_checked"] == without_caddyfile(document)


def without_caddyfile(document: Dict[str, Any]) -> List[Any]:
    return [one for one in document["not_checked"] if "caddy" not in one["what"]]


@pytest.mark.parametrize(("duplicates", "expected"), [(2, []), (35, ["nofile-near-limit"])])
def test_descriptors_that_are_nearly_used_up(duplicates: int, expected: List[str]) -> None:
    limited = f"ulimit -n 40; exec {sys.executable} -c '{HOLDER.format(duplicates)}'"
    with subprocess.Popen(
        ["sh", "-c", limited], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        code, document, _ = doctor("--pid", process.pid, "--fail-on", "critical")
        process.stdin.close()  # type: ignore[union-attr]
    assert about_servers(document) == expected
    assert code == (1 if expected else 0)


def test_an_accept_queue_that_is_full_now(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(folder / "l.sock")
        listener.bind(path)
        listener.listen(1)
        clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for client in clients:
            client.connect(path)
        _, document, _ = doctor("--pid", os.getpid())
        for client in clients:
            client.close()
    subjects = [one["subject"] for one in document["findings"] if one["id"] == "accept-queue-full"]
    assert subjects == [path]


def test_without_pid_every_server_is_looked_at(require: Require, folder: Path) -> None:
    port = servers.free_port()
    with node(require, folder, port) as app:
        code, document, stderr = doctor()
    assert (code, stderr) == (0, "")
    assert app.pid in {one["pid"] for one in document["servers"]}


def test_errors_are_those_of_every_command() -> None:
    code, document, stderr = doctor("--pid", 4_000_000_000)
    assert (code, document) == (5, {}) and "error[no-such-pid]" in stderr
    code, _, stderr = doctor("--fail-on", "fatal")
    assert code == 2 and "error[usage]" in stderr


@pytest.mark.usefixtures("as_root")
def test_without_root_it_says_what_it_could_not_look_at(require: Require) -> None:
    tools = require("setpriv")
    argv = [tools["setpriv"], "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    argv += [sys.executable, "-m", "udsprobe", "doctor"]
    text = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert text.stderr == ""
    as_json = subprocess.run([*argv, "--json"], cwd=ROOT, capture_output=True, timeout=PATIENCE_S)
    document = json.loads(as_json.stdout)
    assert document["kernel"]["missing_capabilities"] == ["CAP_BPF", "CAP_PERFMON"]
    assert document["kernel"]["strategies"][0]["state"] == "untried"
    assert document["kernel"]["measurements"] == []
    assert [one["remedy"] for one in document["not_checked"]].count("run as root") >= 2
    assert document["networks"][0]["somaxconn"] is not None


@pytest.mark.root
@pytest.mark.usefixtures("nothing_left_over")
def test_the_trial_says_what_attach_would_and_leaves_nothing() -> None:
    _, document, _ = doctor()
    assert document["kernel"]["strategies"][0] == {
        "name": "tracepoint",
        "state": "works",
        "reason": None,
    }
    argv = [sys.executable, "-m", "udsprobe", "run", "--json", "--output", "/dev/stdout"]
    done = subprocess.run([*argv, "--", "true"], cwd=ROOT, capture_output=True, timeout=PATIENCE_S)
    attached = json.loads(done.stdout)["probe"]["measurements"]
    # Of an observation alone.
    assert [each.pop("coverage") for each in attached] == [None] * len(attached)
    assert document["kernel"]["measurements"] == attached


CHANGES = "unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,chmod,fchmodat,truncate,kill"
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")


def test_it_changes_nothing(strace_installed: str, folder: Path) -> None:
    trace = folder / "trace"
    calls = f"trace=open,openat,ptrace,{CHANGES}"
    argv = [strace_installed, "-f", "-qq", "-e", calls, "-e", "signal=none", "-o", str(trace)]
    argv += [sys.executable, "-B", "-m", "udsprobe", "doctor"]
    subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, check=True)
    made = trace.read_text(errors="replace").splitlines()
    lines = [line for line in made if " = -1 " not in line and "exited with" not in line]
    opened = [line for line in lines if re.search(r" (open|openat)(\(| resumed)", line)]
    assert opened
    assert [line for line in opened if WRITES.search(line)] == []
    assert [line for line in lines if line not in opened and "resumed" not in line] == []
