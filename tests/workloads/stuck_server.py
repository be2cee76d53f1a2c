"""A server that never answers some requests, and waits for something else meanwhile.

    stuck_server.py threads|process|loop PATH FILE

`threads`: one for each connection; `process`: one thread, one connection at a time; `loop`: an
event loop. A request is one line, the name of what it does; a reply is the same line. `echo`
replies at once. The others say their name on stdout and then wait for what never comes: `lock`
(another thread has it), `file` (a lock of FILE, which another process has), `pipe`, `full` (a pipe
that nobody reads), `child`, `compute`, `sleep`, `ask` (PATH.upstream, with a time limit, so it
polls), `send` (a reply larger than any buffer), `push` (a message for the client, which the server
does not have yet). Says "ready" when it listens, and ends with its stdin.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Callable, Dict

LINE_BYTES, LONG_S = 64, 1000
REPLY_BYTES = 1 << 28

taken = threading.Lock()


def on_lock(_: socket.socket) -> None:
    taken.acquire()


def on_file(_: socket.socket) -> None:
    with open(sys.argv[3], "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


def on_pipe(_: socket.socket) -> None:
    reading, _writing = os.pipe()
    os.read(reading, 1)


def on_full(_: socket.socket) -> None:
    """Of a pipe whose reader reads something else, until this process ends."""
    reading, writing = os.pipe()
    other, _until_we_end = os.pipe()
    argv = ["sh", "-c", f"read line <&{other}"]
    with subprocess.Popen(argv, stdin=reading, pass_fds=[other]):
        os.close(reading)
        os.write(writing, bytes(REPLY_BYTES))


def on_child(_: socket.socket) -> None:
    reading, _writing = os.pipe()
    subprocess.run(["cat"], stdin=reading, stdout=subprocess.DEVNULL, check=True)


def on_compute(_: socket.socket) -> None:
    while True:
        pass


def on_sleep(_: socket.socket) -> None:
    time.sleep(LONG_S)


def on_ask(_: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX) as upstream:
        upstream.settimeout(LONG_S)
        upstream.connect(f"{sys.argv[2]}.upstream")
        upstream.sendall(b"?")
        upstream.recv(1)


def on_send(connection: socket.socket) -> None:
    connection.sendall(bytes(REPLY_BYTES))


WAITS: Dict[str, Callable[[socket.socket], None]] = {
    "lock": on_lock,
    "file": on_file,
    "pipe": on_pipe,
    "full": on_full,
    "child": on_child,
    "compute": on_compute,
    "sleep": on_sleep,
    "ask": on_ask,
    "send": on_send,
}


def serve(connection: socket.socket) -> None:
    while True:
        line = connection.recv(LINE_BYTES)
        if not line:
            return
        wait = WAITS.get(line.decode().strip())
        if wait is not None:
            print(line.decode().strip(), flush=True)
            wait(connection)
        connection.sendall(line)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        line = await reader.readline()
        if not line:
            return
        if line == b"push\n":
            print("push", flush=True)
            await asyncio.Event().wait()
        writer.write(line)


def loop(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.start_unix_server(answer, sock=listener)
        print("ready", flush=True)
        await server.serve_forever()

    asyncio.run(run())


def accepted(listener: socket.socket, threads: bool) -> None:
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if threads:
            threading.Thread(target=serve, args=(connection,), daemon=True).start()
        else:
            serve(connection)


def end_with_stdin() -> None:
    """Without a thread: the server is to have no other."""
    parent, child = os.getpid(), os.fork()
    if not child:
        sys.stdin.read()
        os.kill(parent, 9)
        os._exit(0)


def main() -> None:
    mode, path = sys.argv[1:3]
    taken.acquire()
    end_with_stdin()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    if mode == "loop":
        loop(listener)
    else:
        accepted(listener, mode == "threads")


if __name__ == "__main__":
    main()
