"""A gRPC server that echoes, or a client that makes a known number of calls when told.

grpc_echo.py server ADDRESS             prints "ready"
grpc_echo.py client ADDRESS CALLS       makes one call and prints "connected"; then, for each
                                        line on stdin, CALLS calls and "done"
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


def same(message: bytes) -> bytes:
    return message


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Any method returns what it was given."""

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda message, _: message, same, same)


def serve(address: str) -> None:
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Echo()])
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


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], int(sys.argv[3]))
