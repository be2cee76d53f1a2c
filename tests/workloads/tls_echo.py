"""Echoes over TLS: a server that receives record by record, or all that there is, or a client.

    tls_echo.py threads|loop PORT FOLDER VERSION TICKETS
    tls_echo.py client PORT VERSION CONNECTIONS MESSAGES

FOLDER has `certificate` and `key`. A server prints "ready". The client prints it too, and waits for
a line; then it opens CONNECTIONS connections, one after the other, sends MESSAGES on each of them,
and prints "done" when the last is answered; at the next line it ends.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
from typing import Sequence

MESSAGE = b"message."


def server_context(folder: str, version: str, tickets: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion[version]
    context.num_tickets = int(tickets)
    context.load_cert_chain(f"{folder}/certificate", f"{folder}/key")
    return context


def client_context(version: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion[version]
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def echo(connection: socket.socket, context: ssl.SSLContext) -> None:
    with context.wrap_socket(connection, server_side=True) as secure:
        while data := secure.recv(len(MESSAGE)):
            secure.sendall(data)


def serve_by_threads(port: int, context: ssl.SSLContext) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=echo, args=(connection, context), daemon=True).start()


async def serve_by_a_loop(port: int, context: ssl.SSLContext) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(len(MESSAGE)):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, ssl=context)
    print("ready", flush=True)
    await server.serve_forever()


def ask(port: int, context: ssl.SSLContext, messages: int) -> None:
    """On a connection of its own."""
    plain = socket.create_connection(("127.0.0.1", port))
    with context.wrap_socket(plain) as secure:
        for _ in range(messages):
            secure.sendall(MESSAGE)
            assert secure.recv(len(MESSAGE)) == MESSAGE


def ask_when_told(port: int, context: ssl.SSLContext, connections: int, messages: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(connections):
        ask(port, context, messages)
    print("done", flush=True)
    sys.stdin.readline()


def main(words: Sequence[str]) -> None:
    role, port, *others = words
    if role == "client":
        version, connections, messages = others
        ask_when_told(int(port), client_context(version), int(connections), int(messages))
        return
    context = server_context(*others)
    if role == "threads":
        serve_by_threads(int(port), context)
    else:
        asyncio.run(serve_by_a_loop(int(port), context))


if __name__ == "__main__":
    main(sys.argv[1:])
