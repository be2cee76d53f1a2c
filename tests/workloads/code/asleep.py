"""Sleeps in a known function until it is killed: `disk FILE` (fsync of it), or `lock`."""

import os
import sys
import threading
import time

LOCK = threading.Lock()


def planted_dump(file):
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)


def planted_entry():
    with LOCK:
        pass


def holds():
    while True:
        with LOCK:
            time.sleep(0.05)


if sys.argv[1] == "disk":
    FILE = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
    while True:
        planted_dump(FILE)
else:
    threading.Thread(target=holds).start()
    while True:
        planted_entry()
