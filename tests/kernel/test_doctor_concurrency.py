"""`doctor` compares nginx's keepalive with the connections its worker has open at the moment.

The backend holds every request until it is told to answer, so the number is known.
"""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.conftest import Require
from tests.kernel import doctor_hosts, servers
from tests.kernel.doctor_hosts import about_servers, doctor
from tests.patience import PATIENCE_S

CLIENTS = 12
ID = "nginx-keepalive-below-concurrency"
HTTP = """
upstream app {{ server {to}; keepalive {keepalive}; }}
server {{ listen 127.0.0.1:PORT; location / {{
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://app;
}} }}
"""


class Holding:
    """Accepts, reads the request, and answers nobody until all are let go."""

    def __init__(self, listener: socket.socket) -> None:
        listener.listen(64)
        self._listener = listener
        self.held: List[socket.socket] = []
        self.all_there = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while len(self.held) < CLIENTS:
            connection, _ = self._listener.accept()
            if connection.recv(4096):
                self.held.append(connection)
        self.all_there.set()

    def let_go(self) -> None:
        for connection in self.held:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def close(self) -> None:
        for one in (*self.held, self._listener):
            one.close()


@pytest.fixture
def folder(reachable: Path) -> Path:
    return reachable


@pytest.fixture(params=["unix", "tcp"])
def backend(request: pytest.FixtureRequest, folder: Path) -> Iterator[Holding]:
    if request.param == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "app.sock"))
        (folder / "app.sock").chmod(0o666)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
    made = Holding(listener)
    yield made
    made.close()


def address(backend: Holding) -> str:
    name = backend._listener.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"127.0.0.1:{name[1]}"


@pytest.mark.parametrize(
    ("keepalive", "findings"), [(2, [ID]), (CLIENTS - 1, [ID]), (CLIENTS, []), (64, [])]
)
def test_keepalive_against_the_connections_open_now(
    keepalive: int, findings: List[str], require: Require, folder: Path, backend: Holding
) -> None:
    text = HTTP.format(to=address(backend), keepalive=keepalive)
    port = servers.free_port()
    names = {"FOLDER": str(folder), "PORT": str(port)}
    config = doctor_hosts.configuration("", "", text, names)
    nginx = doctor_hosts.start_nginx(require("nginx")["nginx"], folder, config, port)
    clients = [
        http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for _ in range(CLIENTS)
    ]
    try:
        for client in clients:
            client.request("GET", "/")
        assert backend.all_there.wait(PATIENCE_S)
        _, document, stderr = doctor("--pid", nginx.pid)
        assert (about_servers(document), stderr) == (findings, "")
        if findings:
            (found,) = [one for one in document["findings"] if one["id"] == ID]
            assert [one["value"] for one in found["evidence"]] == [keepalive, CLIENTS]
            assert "keepalive 16;" in found["actions"][0]["do"]
        backend.let_go()
        assert [client.getresponse().status for client in clients] == [200] * CLIENTS
    finally:
        for client in clients:
            client.close()
        nginx.stop()
