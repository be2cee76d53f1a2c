"""A threaded Python server and its client, with Python's own account of their calls.

`python_echo.py TRUTH_FILE` makes CONNECTIONS x ROUNDS requests over a Unix
socket. An interpreter makes other calls too, on files: the account is complete
for the calls it lists on Unix stream sockets.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import List

CONNECTIONS = 7
ROUNDS = 23
PAYLOAD = b"x" * 64


def serve(connection: socket.socket) -> None:
    """Echo until the end of the stream."""
    with connection:
        while True:
            received = connection.recv(len(PAYLOAD), socket.MSG_WAITALL)
            if not received:
                return
            connection.sendmsg([received[:23], received[23:]])


def accept_all(listener: socket.socket) -> None:
    """Serve each connection in a thread of its own."""
    threads: List[threading.Thread] = []
    for _ in range(CONNECTIONS):
        connection, _ = listener.accept()
        threads.append(threading.Thread(target=serve, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def ask(address: str) -> None:
    """Make ROUNDS requests over one connection."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        for _ in range(ROUNDS):
            client.send(PAYLOAD)
            client.recv(len(PAYLOAD), socket.MSG_WAITALL)


def truth() -> object:
    """The calls above, counted by reading them."""
    turns = CONNECTIONS * ROUNDS
    payload = len(PAYLOAD)
    calls = {
        "socket": (CONNECTIONS + 1, 0),
        "bind": (1, 0),
        "listen": (1, 0),
        "connect": (CONNECTIONS, 0),
        "accept4": (CONNECTIONS, 0),
        "sendto": (turns, turns * payload),
        "sendmsg": (turns, turns * payload),
        "recvfrom": (2 * turns + CONNECTIONS, 2 * turns * payload),
        "close": (2 * CONNECTIONS + 1, 0),
    }
    row = {"transport": "unix", "socket_type": "stream", "abi": "native", "errors": {}}
    rows = [{"name": name, "calls": n, "bytes": b, **row} for name, (n, b) in calls.items()]
    return {"workload": "python_echo", "requests": turns, "calls": rows, "left": 0}


def main(path: Path) -> None:
    """Be server and client, then write the account to `path`."""
    address = f"\0udsprobe-python-{threading.get_native_id()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        server = threading.Thread(target=accept_all, args=(listener,))
        server.start()
        for _ in range(CONNECTIONS):
            ask(address)
        server.join()
    path.write_text(json.dumps(truth()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
