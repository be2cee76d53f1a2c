"""CPU time of the programs themselves, measured now and then.

The kernel's statistics cost two clock reads per run of every BPF program on
the host, so they are on for one interval in thirty, and during the first.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Optional

from udsprobe.kernel.libbpf import STATS_RUN_TIME, LibbpfError, libbpf

EVERY_INTERVALS = 30


class RunTimeMeter:
    """Adds up run time over the intervals in which it was measured.

    Args:
        read_ns: total run time of the programs so far, ns.

    Attributes:
        spent_ns, measured_ns: run time, and the wall time it was measured in;
            both None when the kernel does not measure it (before Linux v5.8,
            commit d46edd671a14 "bpf: Sharing bpf runtime stats with BPF_ENABLE_STATS").
    """

    def __init__(self, read_ns: Callable[[], int]) -> None:
        self._read_ns = read_ns
        self._statistics: Optional[int] = None
        self._intervals = 0
        self.spent_ns: Optional[int] = 0
        self.measured_ns: Optional[int] = 0

    def tick(self) -> None:
        """One interval ends, if it was not the first tick, and another begins."""
        if self._statistics is not None:
            self._switch_off()
        if self._intervals % EVERY_INTERVALS == 0 and self.spent_ns is not None:
            self._switch_on()
        self._intervals += 1

    def close(self) -> None:
        """Leave the kernel's statistics as they were."""
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None

    def _switch_on(self) -> None:
        try:
            self._statistics = libbpf().call("bpf_enable_stats", STATS_RUN_TIME)
        except LibbpfError:
            self.spent_ns = self.measured_ns = None
            return
        self._began_ns, self._before_ns = time.monotonic_ns(), self._read_ns()

    def _switch_off(self) -> None:
        assert self.spent_ns is not None and self.measured_ns is not None
        self.spent_ns += self._read_ns() - self._before_ns
        self.measured_ns += time.monotonic_ns() - self._began_ns
        self.close()
