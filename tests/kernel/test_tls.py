"""TLS: a handshake is no request, whatever its flights, and however the program receives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.conftest import Require
from tests.kernel.piped import PipedProgram
from tests.kernel.servers import free_port
from tests.kernel.tool import Attached
from tests.workloads.tls_echo import ask, client_context

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
CONNECTIONS, MESSAGES = 30, 3
REQUESTS = CONNECTIONS * MESSAGES
VERSIONS = ["TLSv1_2", "TLSv1_3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, require: Require) -> Path:
    """With a certificate and its key."""
    made = tmp_path_factory.mktemp("tls")
    argv = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "1", "-subj", "/CN=localhost"]
    argv += ["-keyout", str(made / "key"), "-out", str(made / "certificate")]
    subprocess.run([require("openssl")["openssl"], *argv], check=True, capture_output=True)
    return made


def python_server(kind: str, port: int, folder: Path, version: str, tickets: int = 2) -> List[str]:
    words = [kind, str(port), str(folder), version, str(tickets)]
    return [sys.executable, str(WORKLOADS / "tls_echo.py"), *words]


def assert_counted(server: List[str], port: int, version: str, tmp_path: Path) -> None:
    """What it serves: each request, and beside them each handshake."""
    with PipedProgram(*server) as program:
        assert program.says() == "ready"
        with Attached(["--pid", str(program.pid)], tmp_path) as watched:
            for _ in range(CONNECTIONS):
                ask(port, client_context(version), MESSAGES)
        served = watched.report["requests"]["served"]
        (row,) = watched.report["requests"]["served_by"]
        for counts in (served, row):
            assert (counts["count"], counts["tls_handshakes"]) == (REQUESTS, CONNECTIONS)
        assert served["turn_based"] is True


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_a_handshake_is_no_request(folder: Path, tmp_path: Path, kind: str, version: str) -> None:
    """Received record by record by the threads, and as it comes by the loop."""
    port = free_port()
    assert_counted(python_server(kind, port, folder, version), port, version, tmp_path)


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_nor_is_one_that_ends_without_a_ticket(folder: Path, tmp_path: Path, kind: str) -> None:
    """Nothing is sent between the client's last flight and the reply to its first request."""
    port = free_port()
    argv = python_server(kind, port, folder, "TLSv1_3", tickets=0)
    assert_counted(argv, port, "TLSv1_3", tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_nor_is_one_of_node(folder: Path, tmp_path: Path, version: str, require: Require) -> None:
    port = free_port()
    script = str(WORKLOADS / "tls_echo.js")
    argv = [require("node")["node"], script, str(port), str(folder), version.replace("_", ".")]
    assert_counted(argv, port, version, tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_nor_is_one_of_a_targets_own(folder: Path, tmp_path: Path, version: str) -> None:
    port = free_port()
    words = ["client", str(port), version, str(CONNECTIONS), str(MESSAGES)]
    client = [sys.executable, str(WORKLOADS / "tls_echo.py"), *words]
    with PipedProgram(*python_server("threads", port, folder, version)) as server:
        assert server.says() == "ready"
        with PipedProgram(*client) as program:
            assert program.says() == "ready"
            with Attached(["--pid", str(program.pid)], tmp_path) as watched:
                program.tell("go\n")
                assert program.says() == "done"
    (upstream,) = watched.report["requests"]["upstream"]
    assert upstream["count"] == REQUESTS
