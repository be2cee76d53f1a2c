"""Real servers on loopback and in temporary folders: started, awaited, stopped by PID."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import List, Sequence, Tuple, Union

from tests.patience import PATIENCE_S

Address = Union[str, Tuple[str, int]]

NGINX_CONFIGURATION = """
daemon off;
user root;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    upstream app {{
        server unix:{upstream};
        keepalive {keepalive};
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


class Server:
    """A process that answers at `address` while the block lasts.

    Args:
        argv: its command line.
        address: a Unix path, or host and port.
        log: where its output goes.
    """

    def __init__(self, argv: Sequence[str], address: Address, log: Path) -> None:
        self.address = address
        self._argv = list(argv)
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Server:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_it_answers(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not _answers(self.address):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < give_up_at, f"{self._argv[0]} does not answer"
            time.sleep(0.01)

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _answers(address: Address) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0


def free_port() -> int:
    """A TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def node(program: str, script: Path, folder: Path) -> Server:
    """`script` by node, on a Unix socket in `folder`."""
    path = str(folder / "app.sock")
    return Server([program, str(script), path], path, folder / "node.log")


def node_on_tcp(program: str, script: Path, folder: Path) -> Server:
    """`script` by node, on a free port of `[::]`, which IPv4 clients reach too."""
    port = free_port()
    return Server([program, str(script), str(port)], ("127.0.0.1", port), folder / "node.log")


def nginx(program: str, upstream: Address, keepalive: int, folder: Path) -> Server:
    """nginx with two workers before `upstream`, keeping `keepalive` connections each."""
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        NGINX_CONFIGURATION.format(folder=folder, upstream=upstream, keepalive=keepalive, port=port)
    )
    argv = [program, "-p", str(folder), "-c", str(configuration), "-e", str(folder / "start.log")]
    return Server(argv, ("127.0.0.1", port), folder / "nginx.log")


def redis(program: str, folder: Path, *options: str) -> Server:
    """Redis on a Unix socket in `folder`, which saves nothing by itself."""
    path = str(folder / "redis.sock")
    argv = [program, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
    return Server([*argv, "--dir", str(folder), *options], path, folder / "redis.log")


def load(argv: List[str]) -> str:
    """Run a load generator to its end; what it said."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
