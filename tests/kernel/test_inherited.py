"""Requests on connections that a target's parent accepted: the target holds no listener."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest

from tests.kernel.tool import Attached

pytestmark = [pytest.mark.root]

REQUESTS = 17


@contextmanager
def listening(transport: str) -> Iterator[socket.socket]:
    if transport == "tcp":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener
        return
    with (
        tempfile.TemporaryDirectory(prefix="udsprobe-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        listener.bind(f"{folder}/s")
        listener.listen()
        yield listener


def serve(connection: socket.socket) -> None:
    """In the child, as PostgreSQL's backends do: until the client leaves."""
    while connection.recv(64):
        connection.sendall(b"reply")


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_child_serves_what_its_parent_accepted(transport: str, tmp_path: Path) -> None:
    with listening(transport) as listener, socket.socket(listener.family) as client:
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        child = os.fork()
        if not child:
            try:
                listener.close()
                client.close()
                serve(accepted)
            finally:
                os._exit(0)
        accepted.close()
        try:
            with Attached(["--pid", str(child)], tmp_path) as watch:
                for _ in range(REQUESTS):
                    client.sendall(b"request")
                    assert client.recv(64) == b"reply"
        finally:
            client.close()
            os.waitpid(child, 0)
    served = watch.report["requests"]["served_by"]
    assert [(row["pid"], row["count"]) for row in served] == [(child, REQUESTS)]
    roles = [(row["transport"], row["role"]) for row in watch.report["connections"]]
    assert roles == [(transport, "served")]
