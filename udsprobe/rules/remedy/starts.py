"""Remedies for threads and processes that cannot be started: the limit, by whose it is.

Sources: copy_process() of kernel/fork.c, systemd.resource-control(5), prlimit(1), sysctl(8).
"""

from __future__ import annotations

from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, look, now, restart
from udsprobe.rules.servers import GENERIC

Rows = Dict[str, Tuple[Row, ...]]

_NEEDS = "{who} starts threads or processes for its work, and may have {was} in all"
_POOL: Rows = {
    "apache": (
        restart(
            "lower MaxRequestWorkers of Apache to what the limit allows",
            "what it cannot start waits",
        ),
    ),
    "java": (
        restart(
            "serve connections with a pool of threads or with virtual threads, in place of a "
            "thread for each connection",
            "threads then do not grow with its clients",
        ),
    ),
    GENERIC: (
        restart(
            "serve connections with a pool of threads or processes, in place of one for each "
            "connection",
            "its threads then do not grow with its clients",
        ),
    ),
}


def _raised(row: Row) -> Rows:
    """This one first, then what each server needs fewer threads by."""
    return {server: (row, *rows) for server, rows in _POOL.items()}


UNIT = _raised(
    now(
        "sudo systemctl set-property {unit} TasksMax={more}",
        "raise the limit of threads of {unit}",
        _NEEDS,
        "sudo systemctl set-property {unit} TasksMax={was}",
    )
)
CONTAINER = _raised(
    now(
        "sudo docker update --pids-limit {more} {container}",
        "raise the limit of threads of the container",
        _NEEDS,
        "sudo docker update --pids-limit {was} {container}",
    )
)
CGROUP = _raised(
    now(
        "echo {more} | sudo tee {file}",
        "raise the limit of threads of its cgroup; for good: where its cgroup is made (Kubernetes: "
        "podPidsLimit of the kubelet)",
        _NEEDS,
        "echo {was} | sudo tee {file}",
    )
)
USER = _raised(
    now(
        "for p in {pids}; do sudo prlimit --pid $p --nproc={more}; done",
        "raise the limit of the running process, which counts all threads of its user; for good: "
        "LimitNPROC={more} in its systemd unit, or nproc in /etc/security/limits.conf",
        _NEEDS,
        "for p in {pids}; do sudo prlimit --pid $p --nproc={was}; done",
    )
)
HOST = _raised(
    now(
        "sudo sysctl -w {name}={more}",
        "raise the limit of threads of the host; for good: the same in /etc/sysctl.d",
        "the host has as many threads as it may have",
        "sudo sysctl -w {name}={was}",
    )
)
UNKNOWN: Rows = {
    GENERIC: (
        look(
            "cat /proc/{pid}/limits /proc/{pid}/cgroup /proc/loadavg /proc/sys/kernel/threads-max",
            "look for the limit: Max processes, pids.max of its cgroup, threads of the host",
            "no limit that is known was near when it was looked at",
        ),
        *_POOL[GENERIC],
    ),
}
NO_MEMORY: Rows = {
    GENERIC: (
        look(
            "free -m; cat /proc/{pid}/cgroup; grep -i commit /proc/meminfo",
            "see whether memory is left for the stack of a thread, or for the copy of a process",
            "the kernel has no memory for another one, or the first process of the PID namespace "
            "has ended",
        ),
        *_POOL[GENERIC],
    ),
}
