"""A log that takes so many datagrams a second: PATH RATE."""

from __future__ import annotations

import socket
import sys
import time


def main(path: str, rate: float) -> None:
    """For ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(path)
        while True:
            log.recv(65536)
            time.sleep(1 / rate)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
