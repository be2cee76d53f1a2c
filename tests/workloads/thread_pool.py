"""A pool of threads that compute behind the interpreter lock: waits with a time limit, most of
which another thread ends. Says its PID, and ends when its stdin does.
"""

from __future__ import annotations

import os
import select
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

THREADS, TASKS, TASK_S = 40, 60, 0.005


def compute() -> None:
    """For a while by this thread's own clock."""
    until = time.thread_time() + TASK_S
    while time.thread_time() < until:
        pass


def is_over() -> bool:
    """Whether whoever started this has closed its stdin."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    """Keeps as many tasks in hand as there were first."""
    with ThreadPoolExecutor(THREADS) as pool:
        tasks = {pool.submit(compute) for _ in range(TASKS)}
        print(os.getpid(), flush=True)
        while not is_over():
            done, tasks = wait(tasks, return_when=FIRST_COMPLETED)
            tasks |= {pool.submit(compute) for _ in done}


if __name__ == "__main__":
    main()
