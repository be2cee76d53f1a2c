"""CPUs as the kernel lists them (cpuset(7), List format)."""

from __future__ import annotations

from typing import List, Sequence


def cpu_list(ascending: Sequence[int]) -> str:
    """CPU numbers as `0-2,5`."""
    runs: List[List[int]] = []
    for each in ascending:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
