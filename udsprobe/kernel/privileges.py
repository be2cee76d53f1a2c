"""What this process may do: the capabilities that loading probes takes."""

from __future__ import annotations

from pathlib import Path
from typing import List

# include/uapi/linux/capability.h
CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 21, 38, 39


def missing_capabilities() -> List[str]:
    """Names of the capabilities that tracing lacks, empty when it can start.

    CAP_BPF and CAP_PERFMON (Linux v5.8) suffice; CAP_SYS_ADMIN holds both.
    """
    return missing_among(effective_set(Path("/proc/self/status").read_text()))


def missing_among(effective: int) -> List[str]:
    """The same for a given set of capabilities, one bit each."""
    if effective >> CAP_SYS_ADMIN & 1:
        return []
    wanted = {"CAP_BPF": CAP_BPF, "CAP_PERFMON": CAP_PERFMON}
    return [name for name, bit in wanted.items() if not effective >> bit & 1]


def effective_set(status: str) -> int:
    """The effective capabilities in the text of /proc/PID/status; none when it has no such line."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
