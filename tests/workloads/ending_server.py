"""A server whose workers end in the middle: ending_server.py SOCKET.

For each line `ANSWERED LEFT HOW` it forks a worker, which reads a byte from each of so many
connections, answers the first ones, and ends: `status 3`, `signal 11`, or `memory 100`, which takes
so many MB until the kernel kills it. It prints the status of wait4() then.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import List

OPEN: List[socket.socket] = []


def work(listener: socket.socket, answered: int, left: int) -> None:
    for number in range(answered + left):
        connection, _ = listener.accept()
        assert connection.recv(1) == b"?"
        if number < answered:
            connection.sendall(b"!")
        OPEN.append(connection)


def end(how: str, number: int) -> None:
    if how == "signal":
        os.kill(os.getpid(), number)
    taken = []
    while how == "memory" and len(taken) < number:
        taken.append(os.urandom(1 << 20))
    os._exit(number)


def main() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        print("ready", flush=True)
        for line in sys.stdin:
            answered, left, how, number = line.split()
            worker = os.fork()
            if not worker:
                work(listener, int(answered), int(left))
                end(how, int(number))
            print(os.waitpid(worker, 0)[1], flush=True)


if __name__ == "__main__":
    main()
