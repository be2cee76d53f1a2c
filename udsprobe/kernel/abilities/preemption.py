"""Whether this kernel lets a task be preempted while it is in the kernel."""

from __future__ import annotations

import platform
from pathlib import Path

MODE = Path("/sys/kernel/debug/sched/preempt")
PREEMPTING = ("(full)", "(lazy)")


def preempts_kernel_code() -> bool:
    """By the mode in force (Linux kernel/sched/debug.c, sched_dynamic_show).

    Where that cannot be read, by what the kernel was built for.
    """
    try:
        return any(mode in MODE.read_text() for mode in PREEMPTING)
    except OSError:
        return "PREEMPT" in platform.version()
