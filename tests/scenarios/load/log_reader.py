"""A log that takes so many datagrams a second: PATH RATE [OTHER]; SIGUSR2 swaps the two rates."""

from __future__ import annotations

import signal
import socket
import sys
import time
from typing import List


def main(path: str, rates: List[float]) -> None:
    """For ever."""
    signal.signal(signal.SIGUSR2, lambda *_: rates.reverse())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(path)
        while True:
            log.recv(65536)
            time.sleep(1 / rates[0])


if __name__ == "__main__":
    main(sys.argv[1], [float(text) for text in sys.argv[2:]])
