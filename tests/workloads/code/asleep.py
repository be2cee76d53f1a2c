"""Sleeps in a known function (fsync of its own file) until it is killed."""

import os
import sys

FILE = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)


def planted_dump():
    os.pwrite(FILE, bytes(1 << 20), 0)
    os.fsync(FILE)


while True:
    planted_dump()
