"""Keeps many objects, and makes the collector look at all of them again and again."""

import gc

kept = [[i] for i in range(300_000)]
print("spins", flush=True)
while True:
    gc.collect()
