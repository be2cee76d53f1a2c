"""A server whose workers end in the middle: ending_server.py SOCKET, or `tcp`. It says where.

For each line `ANSWERED LEFT HOW` it forks a worker, which reads a byte from each of so many
connections, answers the first ones, and ends: `status 3`, `signal 11`, or `memory 100`, which takes
so many MB until the kernel kills it; `goodbye 3` reads what else the others say until they close,
and ends with that status. It prints the status of wait4() then.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import List

OPEN: List[socket.socket] = []
# Longer than GOODBYE_NS: who speaks again so late asks for no reply.
LATE_S = 0.02


def work(listener: socket.socket, answered: int, left: int) -> None:
    for number in range(answered + left):
        connection, _ = listener.accept()
        assert connection.recv(1) == b"?"
        if number < answered:
            connection.sendall(b"!")
        OPEN.append(connection)


def hear_out(connection: socket.socket) -> None:
    time.sleep(LATE_S)
    while connection.recv(1):
        pass


def end(how: str, number: int, left: int) -> None:
    if how == "signal":
        os.kill(os.getpid(), number)
    for connection in OPEN[len(OPEN) - left :] if how == "goodbye" else ():
        hear_out(connection)
    taken = []
    while how == "memory" and len(taken) < number:
        taken.append(os.urandom(1 << 20))
    os._exit(number)


def main() -> None:
    is_tcp = sys.argv[1] == "tcp"
    with socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX) as listener:
        listener.bind(("127.0.0.1", 0) if is_tcp else sys.argv[1])
        listener.listen(64)
        print(listener.getsockname()[1] if is_tcp else sys.argv[1], flush=True)
        for line in sys.stdin:
            answered, left, how, number = line.split()
            worker = os.fork()
            if not worker:
                work(listener, int(answered), int(left))
                end(how, int(number), int(left))
            print(os.waitpid(worker, 0)[1], flush=True)


if __name__ == "__main__":
    main()
