"""Names that a server looks up, against what it and its name server know."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.kernel.piped import PipedProgram
from tests.kernel.tool import Attached
from tests.workloads.naming_server import AT_ONCE, HEADER_BYTES, NAMES, NOBODY, PATIENCE_S

pytestmark = [pytest.mark.root]

WORKLOAD = Path(__file__).parents[1] / "workloads" / "naming_server.py"
WHERE = ":".join(map(str, NAMES))
TAKES_S = 0.04


class NameServer:
    """Answers each question after 40 ms, but for those of `again` and `lost`.

    Of `many` the last comes first.
    """

    def __init__(self) -> None:
        self.questions: List[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(NAMES)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        waiting: List[bytes] = []
        while (asked := self._socket.recvfrom(512))[0] != b"end":
            question, client = asked
            how = question[HEADER_BYTES:].decode()
            self.questions.append(how)
            if how in ("again", "lost"):
                continue
            waiting.append(question)
            if how == "many" and len(waiting) < AT_ONCE:
                continue
            time.sleep(TAKES_S)
            while waiting:
                self._socket.sendto(waiting.pop(), client)

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
            at.sendto(b"end", NAMES)
        self._thread.join()
        self._socket.close()


@pytest.fixture
def names() -> Iterator[NameServer]:
    started = NameServer()
    yield started
    started.end()


def asked(folder: Path, *orders: str, detail: str = "full") -> Dict[str, Any]:
    """The report of a server that was given these requests, one after the other."""
    path = folder / "app"
    with PipedProgram(sys.executable, str(WORKLOAD), str(path)) as server:
        assert server.says() == "listens"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            with Attached(["--pid", str(server.pid), "--detail", detail], folder) as watched:
                for order in orders:
                    client.sendall(order.encode())
                    assert client.recv(64) == b"done"
    return watched.report


def test_each_question_counts_once(names: NameServer, folder: Path) -> None:
    """Also where it is asked again; several at once; and on a socket of before."""
    report = asked(
        folder, *["one"] * 23, *["both"] * 7, *["again"] * 3, *["kept"] * 5, *["many"] * 4
    )
    answered = 23 + 2 * 7 + 3 + 5 + AT_ONCE * 4
    assert len(names.questions) == answered + 3
    (row,) = report["requests"]["upstream"]
    assert (row["transport"], row["address"]) == ("udp", WHERE)
    assert (row["count"], row["given_up"]["count"], row["dropped"]["count"]) == (answered, 0, 0)
    assert row["latency_us"]["max"] >= 1e6 * PATIENCE_S
    assert 1e6 * TAKES_S <= row["latency_us"]["p50"] * 1.03 <= 1e6 * PATIENCE_S
    (served,) = report["requests"]["served_by"]
    assert (served["count"], served["asking"]["count"]) == (42, 0)
    (own,) = served["upstream"]
    assert (own["transport"], own["address"], own["count"]) == ("udp", WHERE, answered)
    assert served["app_time_pct"]["upstream"] > 80
    assert report["verdict"]["cause"] == "upstream-wait"
    assert report["verdict"]["subject"] == f"udp:{WHERE}"
    assert f"waits for the name server udp:{WHERE}, which takes" in report["verdict"]["summary"]


def test_answers_that_never_come(names: NameServer, folder: Path) -> None:
    """Also where the next socket has the memory of the one before, and asks with its number."""
    orders = [*["lost"] * 3, *["same lost", "same one"] * 3, *["one"] * 14, *["none"] * 9]
    report = asked(folder, *orders)
    (row,) = report["requests"]["upstream"]
    assert (row["count"], row["given_up"]["count"], row["dropped"]["count"]) == (17, 6, 0)
    assert row["given_up"]["waited_mean_us"] >= 1e6 * PATIENCE_S
    verdict = report["verdict"]
    assert (verdict["cause"], verdict["harm"]["kind"]) == ("upstream-wait", "failed")
    assert f"of requests to the name server udp:{WHERE} end without an answer" in verdict["summary"]


def test_a_name_server_that_is_not_there(folder: Path) -> None:
    report = asked(folder, *["refused"] * 8, *["none"] * 30)
    (row,) = report["requests"]["upstream"]
    assert row["address"] == ":".join(map(str, NOBODY))
    assert (row["count"], row["given_up"]["count"], row["dropped"]["count"]) == (0, 0, 8)
    assert report["verdict"]["harm"]["count"] == 8
    assert "nobody listens there (ECONNREFUSED)" in report["verdict"]["summary"]


def test_what_else_goes_by_udp_is_no_request(folder: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as metrics:
        metrics.bind((NAMES[0], 0))
        port = metrics.getsockname()[1]
        report = asked(folder, *[f"metric {port}"] * 40, *["none"] * 10)
        assert all(metrics.recv(64) == b"requests:1|c" for _ in range(40))
    assert report["requests"]["upstream"] == []
    (served,) = report["requests"]["served_by"]
    assert (served["count"], served["asking"]["count"]) == (50, 0)
    assert not served["app_time_pct"]["upstream"]


def test_a_socket_in_the_place_of_a_lookup_s_is_none(names: NameServer, folder: Path) -> None:
    """It has the address of one that asked a name server, and sends to another port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as metrics:
        metrics.bind((NAMES[0], 0))
        port = metrics.getsockname()[1]
        report = asked(folder, *["one", f"once {port}", f"once {port}", f"once {port}"] * 20)
        assert all(metrics.recv(64) == b"requests:1|c" for _ in range(60))
    (row,) = report["requests"]["upstream"]
    assert (row["address"], row["count"], row["given_up"]["count"]) == (WHERE, 20, 0)


def test_they_are_followed_in_detail_full_only(names: NameServer, folder: Path) -> None:
    report = asked(folder, *["one"] * 9, *["kept"] * 5, detail="light")
    assert report["requests"]["upstream"] == []
    (served,) = report["requests"]["served_by"]
    assert (served["count"], served["asking"]["count"]) == (14, 0)
