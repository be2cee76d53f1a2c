"""A gRPC server that echoes, or a client that makes a known number of calls when told.

grpc_echo.py server ADDRESS             prints "ready"
grpc_echo.py client ADDRESS CALLS       makes one call and prints "connected"; then, for each
                                        line on stdin, CALLS calls and "done"
grpc_echo.py holding ADDRESS CALLS      the same, while a stream holds each of the server's
                                        workers; its calls are given up after 300 ms
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Iterator

import grpc

WORKERS = 4
WATCH = "/echo.Echo/Watch"
PATIENCE_S = 0.3


def same(message: bytes) -> bytes:
    return message


def watch(message: bytes, context: Any) -> Iterator[bytes]:
    """A stream that ends when its client does."""
    yield message
    while context.is_active():
        time.sleep(0.05)


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Any method but one returns what it was given."""

    def service(self, details: Any) -> Any:
        if details.method == WATCH:
            return grpc.unary_stream_rpc_method_handler(watch, same, same)
        return grpc.unary_unary_rpc_method_handler(lambda message, _: message, same, same)


def serve(address: str) -> None:
    server = grpc.server(ThreadPoolExecutor(WORKERS), handlers=[Echo()])
    if not server.add_insecure_port(address):
        raise SystemExit(f"cannot listen on {address}")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


def ask(address: str, calls: int) -> None:
    with grpc.insecure_channel(address) as channel:
        echo = channel.unary_unary("/echo.Echo/Echo", same, same)
        assert echo(b"first") == b"first"
        print("connected", flush=True)
        for _ in sys.stdin:
            for number in range(calls):
                message = str(number).encode()
                assert echo(message) == message
            print("done", flush=True)


def hold(address: str, calls: int) -> None:
    with grpc.insecure_channel(address) as channel:
        watches = [channel.unary_stream(WATCH, same, same)(b"watch") for _ in range(WORKERS)]
        for stream in watches:
            assert next(stream) == b"watch"
        echo = channel.unary_unary("/echo.Echo/Echo", same, same)
        print("connected", flush=True)
        for _ in sys.stdin:
            for _ in range(calls):
                with suppress(grpc.RpcError):
                    echo(b"late", timeout=PATIENCE_S)
            print("done", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    elif sys.argv[1] == "holding":
        hold(sys.argv[2], int(sys.argv[3]))
    else:
        ask(sys.argv[2], int(sys.argv[3]))
