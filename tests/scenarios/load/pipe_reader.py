"""A log that takes so many lines of 2,000 bytes a second from a named pipe: PATH RATE."""

from __future__ import annotations

import sys
import time

LINE_BYTES = 2000


def main(path: str, rate: float) -> None:
    """Until nobody writes there any more."""
    with open(path, "rb", buffering=0) as pipe:
        while pipe.read(LINE_BYTES):
            time.sleep(1 / rate)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
