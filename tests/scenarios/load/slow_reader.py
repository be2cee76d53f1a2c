"""Takes its standard input at so many bytes a second, and says when it has begun."""

from __future__ import annotations

import os
import sys
import time

PIECE = 16384


def main(rate: float) -> None:
    """Until the input ends."""
    began, taken = time.monotonic(), 0
    while True:
        piece = os.read(0, PIECE)
        if not piece:
            return
        if not taken:
            print("reading", flush=True)
        taken += len(piece)
        time.sleep(max(0.0, began + taken / rate - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
