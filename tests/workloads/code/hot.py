"""Burns CPU in a known function, called from another, until it is killed; "spins" is said first."""

import sys


def planted_dear(rounds):
    value = 1
    for _ in range(rounds):
        value = value * 1664525 % 4294967296
    return value


def planted_caller():
    return planted_dear(200000)


print("spins", flush=True)
while True:
    planted_caller()
    sys.stdout.flush()
