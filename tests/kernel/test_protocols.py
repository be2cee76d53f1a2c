"""Protocols whose turns are not requests, and those that only look so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import List, Tuple

import pytest

from tests.kernel.conversations import Conversation, conversation, owed
from tests.kernel.servers import free_port
from tests.kernel.tool import Attached, Report

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("nothing_left_over")]


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s" if request.param == "unix" else f"127.0.0.1:{free_port()}"


# A FastCGI request as nginx sends it; the record that ends it has 8 bytes, and PHP-FPM reads it
# when it has replied.
BODY, END = b"\1\1\0\1\0\10\0\0" + 8 * b"\0" + 64 * b"p", b"\1\5\0\1\0\0\0\0"
REQUESTS = 20
IDLE_S = 0.02
RELATIVE_ERROR = 1.032  # of the histogram's slots


def counts(report: Report) -> Tuple[int, int]:
    """Requests, and those sent ahead."""
    (row,) = report["requests"]["served_by"]
    return report["requests"]["served"]["count"], row["pipelined"]


def assert_takes_turns(report: Report, client: Conversation) -> None:
    served = report["requests"]["served"]
    assert counts(report) == (REQUESTS, 0)
    assert served["turn_based"] is True
    assert served["latency_us"]["max"] * 1000 <= max(client.true_ns) * RELATIVE_ERROR
    assert served["latency_us"]["mean"] * 1000 * REQUESTS <= sum(client.true_ns) * RELATIVE_ERROR


def test_the_end_of_a_request_read_after_its_reply_is_no_request(
    address: str, tmp_path: Path
) -> None:
    """As PHP-FPM does; the time until the next request belongs to none."""
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS):
                client.send(BODY + END)
                client.server_reads(BODY)
                client.server_replies()
                client.server_reads(END)
                time.sleep(IDLE_S)
        assert_takes_turns(watched.report, client)
        assert owed(watched.report) == (0, 0)


def test_a_next_request_that_comes_before_the_end_of_the_last_is_read(
    address: str, tmp_path: Path
) -> None:
    """A quick client has the reply, and asks again."""
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            client.send(BODY + END)
            for number in range(REQUESTS):
                client.server_reads(BODY)
                client.server_replies()
                if number + 1 < REQUESTS:
                    client.send(BODY + END)
                    client.server_reads(END)
        assert_takes_turns(watched.report, client)
        (row,) = watched.report["requests"]["served_by"]
        assert (owed(watched.report), row["unread"]["count"]) == ((0, 0), 0)


def resp(*words: str) -> bytes:
    """A command of Redis, as its clients send it."""
    said = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    return f"*{len(words)}\r\n{said}".encode()


# What a consumer says of a message that it has, or when it wants one, as the clients of brokers do.
AMQP_ACK = bytes.fromhex("01 0001 0000000d 003c 0050 0000000000000027 00 ce")
AMQP_NACK = bytes.fromhex("01 0001 0000000d 003c 0078 0000000000000027 01 ce")
AMQP_HEARTBEAT = bytes.fromhex("08 0000 00000000 ce")
STOMP_ACK = b"ACK\nid:T_2@@session-1@@7\n\n\0"
NATS_ACK = b"PUB $JS.ACK.orders.worker.1.7.7.1796017531210089.0 4\r\n+ACK\r\n"
MQTT_ACK, MQTT_COMPLETE = b"\x40\2\0\7", b"\x70\2\0\7"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(message, id=name)
        for name, message in {
            "amqp": AMQP_ACK,
            "amqp-three": AMQP_ACK * 3,
            "amqp-nack": AMQP_NACK,
            "amqp-heartbeat": AMQP_HEARTBEAT,
            "mqtt-two": MQTT_ACK * 2,
            "mqtt-complete": MQTT_COMPLETE,
            "nats": NATS_ACK,
            "stomp": STOMP_ACK,
            "redis-blpop": resp("BLPOP", "jobs", "2"),
            "redis-brpoplpush": resp("brpoplpush", "jobs", "begun", "0"),
            "redis-xread": resp("XREAD", "BLOCK", "2000", "STREAMS", "orders", "$"),
            "redis-xreadgroup": resp(
                *("XREADGROUP", "GROUP", "billing-and-invoices", "worker-1", "COUNT", "10"),
                *("BLOCK", "2000", "STREAMS", "orders", ">"),
            ),
            "beanstalkd": b"reserve\r\n",
            "beanstalkd-timeout": b"reserve-with-timeout 2\r\n",
        }.items()
    ],
)
def test_to_what_a_consumer_says_no_reply_is_owed(
    address: str, tmp_path: Path, said: bytes
) -> None:
    """The next message comes 20 ms later; it has requests as well."""
    with conversation(address) as (server, client):
        client.tell(said)
        client.server_reads(said)
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS):
                client.server_pushes(BODY)
                client.tell(said)
                client.server_reads(said)
                time.sleep(IDLE_S)
                client.server_pushes(BODY)
                client.send(BODY)
                client.server_reads(BODY)
                client.server_replies()
        assert_takes_turns(watched.report, client)
        assert owed(watched.report) == (0, 0)


def test_a_worker_of_redis_waits_after_many_other_commands(address: str, tmp_path: Path) -> None:
    """RQ's: twenty for each job, on the connection on which it waits for the next one."""
    waits, asks = resp("BLPOP", "jobs", "405"), resp("HSET", "job", "state", "done")
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS):
                client.send(asks)
                client.server_reads(asks)
                client.server_replies()
            for _ in range(REQUESTS):
                client.tell(waits)
                client.server_reads(waits)
                time.sleep(IDLE_S)
                client.server_pushes(BODY)
        assert_takes_turns(watched.report, client)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(AMQP_ACK + BODY, id="amqp-then-a-request"),
        pytest.param(resp("BITCOUNT", "jobs"), id="redis-bitcount"),
        pytest.param(resp("XREAD", "STREAMS", "BLOCK-orders", "0"), id="redis-xread"),
        pytest.param(b"reserve-job 7\r\n", id="beanstalkd-job"),
    ],
)
def test_what_only_looks_so_is_a_request(address: str, tmp_path: Path, said: bytes) -> None:
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS):
                client.send(said)
                client.server_reads(said)
                client.server_replies()
        assert_takes_turns(watched.report, client)


AMQP_PUBLISH = bytes.fromhex("01 0001 0000000a 003c 0028 0000 00 01 71 00 ce")
AMQP_CONTENT = bytes.fromhex("02 0001 0000000e 003c 0000 0000000000000004 0000 ce") + (
    bytes.fromhex("03 0001 00000004") + b"body\xce"
)


def test_what_is_published_without_confirmations_has_no_reply(address: str, tmp_path: Path) -> None:
    """A service that consumes and publishes; what it publishes may come in two pieces."""
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS):
                for piece in (AMQP_PUBLISH, AMQP_CONTENT):
                    client.tell(piece)
                    client.server_reads(piece)
                time.sleep(IDLE_S)
                client.server_pushes(BODY)
        requests = watched.report["requests"]
        assert (requests["served"]["count"], requests["served_by"]) == (0, [])


def test_what_is_published_with_confirmations_waits_for_those(address: str, tmp_path: Path) -> None:
    """Of the first it is not known yet; a message that is pushed meanwhile is none."""
    published = AMQP_PUBLISH + AMQP_CONTENT
    true_ns: List[int] = []
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            for _ in range(REQUESTS + 1):
                began_ns = time.monotonic_ns()
                client.tell(published)
                client.server_reads(published)
                client.server_pushes(BODY)
                time.sleep(IDLE_S)
                client.server_pushes(AMQP_ACK)
                true_ns.append(time.monotonic_ns() - began_ns)
        served = watched.report["requests"]["served"]
        assert served["count"] == REQUESTS
        assert served["latency_us"]["mean"] >= IDLE_S * 1e6
        assert served["latency_us"]["mean"] * 1000 <= max(true_ns[1:]) * RELATIVE_ERROR


def test_requests_sent_ahead_are_counted_exactly(address: str, tmp_path: Path) -> None:
    """Each but the first is there before the reply to the one before; the last is owed."""
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            client.send(BODY)
            for _ in range(REQUESTS):
                client.server_reads(BODY)
                client.send(BODY)
                client.server_replies()
            client.server_reads(BODY)
        assert counts(watched.report) == (REQUESTS, REQUESTS - 1)
        assert watched.report["requests"]["served"]["turn_based"] is False
        assert owed(watched.report) == (1, 1)


def test_requests_sent_together_are_counted_exactly(address: str, tmp_path: Path) -> None:
    with conversation(address) as (server, client):
        with Attached(["--pid", str(server.pid)], tmp_path) as watched:
            client.send(REQUESTS * BODY)
            for _ in range(REQUESTS):
                client.server_reads(BODY[:8])
                client.server_reads(BODY[8:])
                server.do("reply")
        assert counts(watched.report) == (REQUESTS, REQUESTS - 1)
