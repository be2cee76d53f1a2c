"""A real nginx with a planted configuration, and a backend that counts its connections."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socketserver
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
NOFILE = 4096
FRAME = """
{main}
pid FOLDER/nginx.pid;
error_log FOLDER/error.log;
events { {events} }
http {
    access_log off;
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
{http}
}
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: object) -> None:
        pass


class Backend:
    """Answers over TCP and over a Unix socket; counts the connections made to both.

    Attributes:
        port: on 127.0.0.1. path: of the socket file.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.sock"
        self._accepted = 0
        self._lock = threading.Lock()
        backend = self

        class Counting:
            daemon_threads = True
            block_on_close = False

            def process_request(self, request: Any, client: Any) -> None:
                with backend._lock:
                    backend._accepted += 1
                super().process_request(request, client)  # type: ignore[misc]

        class Tcp(Counting, socketserver.ThreadingTCPServer):
            pass

        class Unix(Counting, socketserver.ThreadingUnixStreamServer):
            pass

        tcp = Tcp(("127.0.0.1", 0), _Handler)
        self.port = tcp.server_address[1]
        self._servers: List[socketserver.BaseServer] = [tcp, Unix(str(self.path), _Handler)]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    @property
    def accepted(self) -> int:
        """Connections so far."""
        with self._lock:
            return self._accepted

    def close(self) -> None:
        """Stop answering."""
        for server in self._servers:
            server.shutdown()
            server.server_close()


@dataclass
class Nginx:
    """A running master. `port` is what its configuration calls PORT."""

    pid: int
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    def get(self, requests: int) -> List[int]:
        """Status codes of that many requests, one after the other, on one connection."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        codes = []
        for _ in range(requests):
            client.request("GET", "/")
            answer = client.getresponse()
            answer.read()
            codes.append(answer.status)
        client.close()
        return codes

    def stop(self) -> None:
        """End the master, and with it its workers."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)


def configuration(main: str, events: str, http: str, names: Dict[str, str]) -> str:
    """The frame with its parts, and FOLDER, PORT … replaced."""
    parts = {"{main}": main, "{events}": events, "{http}": http}
    text = FRAME
    for name, value in {**parts, **names}.items():
        text = text.replace(name, value)
    return text


def start_nginx(
    program: str, folder: Path, text: str, port: int, wrapper: Sequence[str] = ()
) -> Nginx:
    """Start nginx in the foreground and wait until all its workers run."""
    path = folder / "nginx.conf"
    path.write_text(text)
    argv = [*wrapper, program, "-p", str(folder), "-c", str(path), "-g", "daemon off;"]
    # Every file of the configuration is older than the workers.
    for file in folder.rglob("*.conf"):
        os.utime(file, (time.time() - 60, time.time() - 60))
    process = subprocess.Popen(
        argv,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr").open("wb"),
        preexec_fn=_lower_soft_limit,
    )
    nginx = Nginx(process.pid, port, folder, process)
    give_up_at = time.monotonic() + PATIENCE_S
    while not _runs(nginx):
        assert process.poll() is None, (folder / "stderr").read_text()
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return nginx


def _lower_soft_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, hard))


def _runs(nginx: Nginx) -> bool:
    try:
        written = (nginx.folder / "nginx.pid").read_text()
        children = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
        titles = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    except OSError:
        return False
    return bool(written and titles) and all(b"worker process" in title for title in titles)


def doctor(*arguments: object) -> Tuple[int, Dict[str, Any], str]:
    """Exit code, document and stderr of `udsprobe doctor --json ARGUMENTS`."""
    done = subprocess.run(
        [sys.executable, "-m", "udsprobe", "doctor", "--json", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def about_servers(document: Dict[str, Any]) -> List[str]:
    """Ids of the findings, without those about this kernel and this host."""
    ours = ("nginx-", "backlog-", "node-", "config-", "caddy-", "unit-", "nofile-", "accept-")
    return sorted({one["id"] for one in document["findings"] if one["id"].startswith(ours)})


def doctor_text(*arguments: object) -> str:
    """What `udsprobe doctor ARGUMENTS` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "udsprobe", "doctor", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout


def run(argv: Sequence[str]) -> None:
    """A command that has to succeed."""
    subprocess.run(argv, check=True, timeout=PATIENCE_S)
