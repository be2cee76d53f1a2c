"""Remedies for processes that end while they serve."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Tuple

from udsprobe.rules.remedy.row import Row, look, restart
from udsprobe.rules.remedy.work import DROPPED, LOG, UNIT_LOG
from udsprobe.rules.servers import GENERIC

Rows = Dict[str, Tuple[Row, ...]]

_WHY = "its log, or that of its master, says why it ended"
_LOGS = (replace(UNIT_LOG, why=_WHY), replace(LOG, why=_WHY))

FAULT: Rows = {
    GENERIC: (
        look(
            "sudo dmesg -T | grep -E 'segfault|trap|general protection' | tail -n 5",
            "see in which library it crashed: the kernel names the module and the address",
            "{who} ends by {how}: an error in its code or in a library of it",
        ),
        *_LOGS,
    ),
}
OUT_OF_MEMORY: Rows = {
    GENERIC: (
        look(
            "sudo dmesg -T | grep -iE 'oom-kill|out of memory' | tail -n 5",
            "see whose limit was reached, and how much memory {who} had",
            "the kernel kills {who} to get memory back",
        ),
        restart(
            "raise the memory limit of its cgroup (systemd: MemoryMax, Docker: --memory, "
            "Kubernetes: resources.limits.memory), or start fewer workers",
            "it needs more memory than it may have",
        ),
    ),
}
KILLED: Rows = {
    GENERIC: (
        _LOGS[0],
        restart(
            "find who kills {who}: a time limit of its master, a health check, a supervisor",
            "{how} comes from another process, and not from the kernel for want of memory",
        ),
    ),
    **{server: rows for server, rows in DROPPED.items() if server != GENERIC},
}
BY_ITSELF: Rows = {GENERIC: _LOGS}
