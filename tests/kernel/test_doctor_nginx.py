"""`udsprobe doctor` on real nginx: every planted fault, nothing on sound configurations.

Where a finding says that connections are not kept, the backend counts them: what
doctor reads and what nginx does must agree.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

import pytest

from tests.conftest import Require
from tests.kernel import doctor_hosts, servers
from tests.kernel.doctor_cases import BROKEN, KEPT, SOUND, UPSTREAM, Case, proxied
from tests.kernel.doctor_hosts import Backend, Nginx, about_servers, doctor

REQUESTS = 6
Start = Callable[..., Nginx]


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


@pytest.fixture
def backend(folder: Path) -> Iterator[Backend]:
    made = Backend(folder)
    made.path.chmod(0o666)
    yield made
    made.close()


@pytest.fixture
def start(require: Require, folder: Path, backend: Backend) -> Iterator[Start]:
    running: List[Nginx] = []

    def started(case: Case, wrapper: Sequence[str] = ()) -> Nginx:
        somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
        port = servers.free_port()
        names = {
            "SOMAXCONN1": str(somaxconn + 1),
            "SOMAXCONN": str(somaxconn),
            "FOLDER": str(folder),
            "PORT": str(port),
            "TCP": f"127.0.0.1:{backend.port}",
            "UNIX": str(backend.path),
            "NOBODY": str(servers.free_port()),
        }
        for name, content in case.files:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content.replace("PORT", str(port)))
        text = doctor_hosts.configuration(case.main, case.events, case.http, names)
        running.append(
            doctor_hosts.start_nginx(require("nginx")["nginx"], folder, text, port, wrapper)
        )
        return running[-1]

    yield started
    for nginx in running:
        nginx.stop()


def of_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", BROKEN, ids=of_name)
def test_every_planted_fault_is_found(case: Case, start: Start, backend: Backend) -> None:
    nginx = start(case)
    code, document, stderr = doctor("--pid", nginx.pid)
    assert (code, stderr) == (0, "")
    assert about_servers(document) == sorted(case.findings)
    connections_agree(case, nginx, backend)


@pytest.mark.parametrize("case", SOUND, ids=of_name)
def test_nothing_on_a_sound_configuration(case: Case, start: Start, backend: Backend) -> None:
    nginx = start(case)
    _, document, stderr = doctor("--pid", nginx.pid)
    assert (about_servers(document), stderr) == ([], "")
    connections_agree(case, nginx, backend)


def connections_agree(case: Case, nginx: Nginx, backend: Backend) -> None:
    if case.reused is not None:
        assert nginx.get(REQUESTS) == [200] * REQUESTS
        assert backend.accepted == (1 if case.reused else REQUESTS)


SOUND_ONE = Case("kept", UPSTREAM + proxied(KEPT))


def test_a_worker_leads_to_its_master(start: Start) -> None:
    nginx = start(BROKEN[0])
    children = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
    _, document, _ = doctor("--pid", children[0])
    assert about_servers(document) == ["nginx-upstream-no-keepalive"]
    (server,) = [one for one in document["servers"] if one["kind"] == "nginx"]
    assert (server["pid"], server["config"]) == (nginx.pid, str(nginx.folder / "nginx.conf"))


def test_a_finding_names_its_line(start: Start) -> None:
    nginx = start(Case("kept", UPSTREAM + "\n\n" + proxied("proxy_http_version 1.1;")))
    _, document, _ = doctor("--pid", nginx.pid)
    (finding,) = [one for one in document["findings"] if one["id"] == "nginx-connection-close"]
    path = nginx.folder / "nginx.conf"
    numbered = enumerate(path.read_text().splitlines(), 1)
    line = next(number for number, text in numbered if "proxy_pass" in text)
    assert finding["places"] == [f"{path}:{line}"]
    assert 'proxy_set_header Connection "";' in finding["actions"][0]["do"]
    assert finding["docs"] == "docs/doctor.md#nginx-connection-close"


def test_files_changed_after_the_workers_started(start: Start) -> None:
    nginx = start(SOUND_ONE)
    path = nginx.folder / "nginx.conf"
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 3600))
    _, document, _ = doctor("--pid", nginx.pid)
    assert about_servers(document) == ["nginx-config-changed"]


@pytest.mark.parametrize(
    ("spoil", "findings"),
    [
        (lambda path: path.write_text(path.read_text() + "}\n"), ["config-broken"]),
        (lambda path: path.write_text(path.read_text()[:-40]), ["config-broken"]),
        (lambda path: path.write_text("events {}\ninclude absent.conf;\n"), ["config-unreadable"]),
        (
            lambda path: path.write_text("worker_processes 1\nevents {}\nhttp {}\n"),
            ["config-broken"],
        ),
        (lambda path: path.write_text("include nginx.conf;\n"), ["config-broken"]),
        (lambda path: path.write_bytes(bytes(range(256))), ["config-broken"]),
        (lambda path: path.unlink(), ["config-unreadable"]),
        (lambda path: (path.unlink(), os.mkfifo(path)), ["config-unreadable"]),
        (lambda path: (path.unlink(), path.symlink_to("nginx.conf")), ["config-unreadable"]),
        (lambda path: (path.unlink(), path.mkdir()), ["config-unreadable"]),
    ],
    ids=[
        "a brace too many",
        "cut off",
        "an include that is missing",
        "a semicolon is missing",
        "a file that includes itself",
        "no text at all",
        "removed",
        "a FIFO",
        "a link to itself",
        "a directory",
    ],
)
def test_spoilt_configurations_are_findings(
    spoil: Callable[[Path], object], findings: List[str], start: Start
) -> None:
    nginx = start(SOUND_ONE)
    spoil(nginx.folder / "nginx.conf")
    code, document, stderr = doctor("--pid", nginx.pid)
    assert (code, stderr) == (0, "")
    assert set(about_servers(document)) - {"nginx-config-changed"} == set(findings)


SECRET = "hunter2-c0ffee"


def test_no_secret_of_a_configuration_is_shown(start: Start) -> None:
    secrets = (
        f'proxy_set_header Authorization "Bearer {SECRET}"; set $key {SECRET};'
        f" proxy_pass http://127.0.0.1:NOBODY/?token={SECRET};"
    )
    nginx = start(Case("secrets", f"map $host $k {{ default {SECRET}; }}" + SERVER_WITH % secrets))
    path = nginx.folder / "nginx.conf"
    _, document, _ = doctor("--pid", nginx.pid)
    assert document["findings"] and SECRET not in str(document)
    path.write_text(path.read_text().replace(f"set $key {SECRET};", f"{SECRET} }}"))
    _, document, _ = doctor("--pid", nginx.pid)
    assert "config-broken" in about_servers(document) and SECRET not in str(document)


SERVER_WITH = "server { listen 127.0.0.1:PORT; location / { %s } }"
HOSTILE = "a\x1b[2J\u202eb"


def test_hostile_names_do_not_reach_the_terminal(start: Start, folder: Path) -> None:
    nginx = start(
        Case(
            "hostile",
            f'upstream "{HOSTILE}" {{ server unix:FOLDER/{HOSTILE}.sock; }}'
            + SERVER_WITH % f'proxy_pass "http://{HOSTILE}";'
            + f'include "{HOSTILE}.conf";',
            files=((f"{HOSTILE}.conf", "# here\n"),),
        )
    )
    code, document, _ = doctor("--pid", nginx.pid)
    assert code == 0
    assert about_servers(document) == ["nginx-upstream-no-keepalive", "nginx-upstream-unreachable"]
    text = doctor_hosts.doctor_text("--pid", nginx.pid)
    assert "\\e[2J\\u202eb" in text
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("closed", ["the socket", "its directory", "nothing"])
def test_whether_the_workers_may_connect(
    closed: str, start: Start, folder: Path, backend: Backend
) -> None:
    inner = folder / "inner"
    inner.mkdir()
    socket = inner / "app.sock"
    os.link(backend.path, socket)
    socket.chmod(0o660 if closed == "the socket" else 0o666)
    inner.chmod(0o700 if closed == "its directory" else 0o755)
    nginx = start(
        Case(
            closed,
            f"upstream app {{ server unix:{socket}; keepalive 4; }}" + proxied(KEPT),
            main="user nobody nogroup;",
        )
    )
    _, document, _ = doctor("--pid", nginx.pid)
    expected = [] if closed == "nothing" else ["nginx-socket-permissions"]
    assert about_servers(document) == expected
    # nginx says the same.
    assert nginx.get(1) == [200 if closed == "nothing" else 502]
    for finding in document["findings"]:
        if finding["id"] == "nginx-socket-permissions":
            at = socket if closed == "the socket" else inner
            assert f"{at} is {stat.S_IMODE(at.stat().st_mode):04o}" in finding["summary"]
            assert finding["severity"] == "critical"


@pytest.mark.usefixtures("as_root")
def test_somaxconn_is_that_of_the_servers_own_namespace(start: Start, require: Require) -> None:
    tools = require("unshare", "ip", "nsenter")
    script = 'ip link set lo up && echo 64 > /proc/sys/net/core/somaxconn && exec "$@"'
    wrapper = [tools["unshare"], "--net", "sh", "-c", script, "sh"]
    nginx = start(Case("clamped", "server { listen 127.0.0.1:PORT backlog=500; }"), wrapper)
    _, document, _ = doctor("--pid", nginx.pid)
    assert about_servers(document) == ["backlog-clamped"]
    own = [one for one in document["networks"] if not one["own"]]
    assert [one["somaxconn"] for one in own] == [64]
    raised = ["sh", "-c", "echo 1000 > /proc/sys/net/core/somaxconn"]
    doctor_hosts.run([tools["nsenter"], "-t", str(nginx.pid), "-n", *raised])
    _, document, _ = doctor("--pid", nginx.pid)
    assert about_servers(document) == ["backlog-not-applied"]


@pytest.mark.usefixtures("as_root")
def test_files_are_those_of_the_servers_own_root(
    start: Start, require: Require, folder: Path
) -> None:
    """In a mount namespace of its own nginx sees another file under the same name."""
    tools = require("unshare", "mount")
    (folder / "hidden").mkdir()
    (folder / "sites").mkdir()
    (folder / "hidden" / "a.conf").write_text("upstream bare { server TCP; }")
    script = f'mount --bind {folder}/hidden {folder}/sites && exec "$@"'
    wrapper = [tools["unshare"], "--mount", "sh", "-c", script, "sh"]
    text = "server { listen 127.0.0.1:PORT; location / { proxy_pass http://NAME; } }"
    (folder / "hidden" / "a.conf").write_text("upstream bare { server 127.0.0.1:1; }")
    (folder / "sites" / "a.conf").write_text("upstream other { server 127.0.0.1:2; }")
    nginx = start(Case("mounted", "include sites/*.conf;" + text.replace("NAME", "bare")), wrapper)
    _, document, _ = doctor("--pid", nginx.pid)
    subjects = {one["subject"] for one in document["findings"] if one["id"].startswith("nginx-")}
    assert subjects == {"upstream bare", "127.0.0.1:1"}


LINES = 5_000
SITE = """server {
    listen 127.0.0.1:PORT;
    server_name host%(n)d.example www.host%(n)d.example;
    location / {
        proxy_pass http://app;
        proxy_read_timeout 30s;
    }
    location ~ "^/static/%(n)d/(.{2,8})$" {
        add_header X-Site 'number %(n)d; { }';
        expires 30d;
    }
}
"""
LOST = "server {\n listen 127.0.0.1:PORT;\n server_name lost;\n location / {\n  %s\n }\n}\n"


@pytest.mark.parametrize(
    ("fault", "findings"),
    [
        ("proxy_pass http://app;", []),
        ("proxy_set_header Host $host; proxy_pass http://app;", ["nginx-connection-close"]),
    ],
    ids=["sound", "one fault"],
)
def test_five_thousand_lines(fault: str, findings: List[str], start: Start) -> None:
    sites = [SITE % {"n": number} for number in range(LINES // SITE.count("\n"))]
    sites.insert(len(sites) // 2, LOST % fault)
    nginx = start(
        Case(
            "long",
            KEPT + UPSTREAM + "server_names_hash_max_size 4096; include sites/*.conf;",
            files=(("sites/all.conf", "".join(sites)),),
        )
    )
    _, document, _ = doctor("--pid", nginx.pid)
    assert about_servers(document) == findings
    (server,) = [one for one in document["servers"] if one["kind"] == "nginx"]
    assert "2 files" in server["says"]
    path = nginx.folder / "sites" / "all.conf"
    lines = path.read_text().splitlines()
    assert len(lines) >= LINES - SITE.count("\n")
    for finding in document["findings"]:
        if finding["id"] in findings:
            assert finding["places"] == [f"{path}:{lines.index('  ' + fault) + 1}"]


def test_hundreds_of_servers_share_one_socket(start: Start) -> None:
    sites = "".join(
        f"server {{ listen 127.0.0.1:PORT{' backlog=SOMAXCONN1' if number == 7 else ''};"
        f" server_name s{number}; }}\n"
        for number in range(300)
    )
    nginx = start(Case("shared", "server_names_hash_max_size 4096;\n" + sites))
    _, document, _ = doctor("--pid", nginx.pid)
    clamped = [one for one in document["findings"] if one["id"] == "backlog-clamped"]
    assert len(clamped) == 1 and about_servers(document) == ["backlog-clamped"]
