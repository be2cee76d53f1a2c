"""Run time of the programs themselves, measured now and then.

The kernel's statistics cost two clock reads per run of every BPF program on
the host, so they are on for a tenth of a second: at first, and then in one
interval of ten. That takes CAP_SYS_ADMIN: once it is given up, what was
measured stays.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional, Tuple

from udsprobe.kernel.objects.libbpf import STATS_RUN_TIME, LibbpfError, libbpf

EVERY_INTERVALS = 10
MEASURED_S = 0.1
# Program → its run time in ns and its runs so far.
Runs = Mapping[str, Tuple[int, int]]


@dataclass(frozen=True)
class RunTime:
    """What was spent while it was measured, cumulative.

    Attributes:
        spent_ns, measured_ns: run time, and the wall time it was measured in.
        ns_by_program, runs_by_program: of each.
    """

    spent_ns: int
    measured_ns: int
    ns_by_program: Mapping[str, int]
    runs_by_program: Mapping[str, int]


class RunTimeMeter:
    """Adds up run time over the moments in which it was measured.

    Args:
        read: run time and runs of each program so far.
    """

    def __init__(self, read: Callable[[], Runs]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._statistics: Optional[int] = None
        self._timer: Optional[threading.Timer] = None
        self._intervals = 0
        self._measured_ns: Optional[int] = 0
        self._totals: Dict[str, Tuple[int, int]] = {}

    def tick(self) -> None:
        """One interval ends, if it was not the first tick, and another begins."""
        with self._lock:
            self._account()
        self.close()
        if self._intervals % EVERY_INTERVALS == 0 and self._measured_ns is not None:
            self._switch_on()
            # At first later: a thread that is there already would keep privileges given up then.
            if self._intervals:
                self.end_in_time()
        self._intervals += 1

    def end_in_time(self) -> None:
        """From now on a thread of ours may end what the first tick began."""
        if self._statistics is not None:
            self._timer = threading.Timer(MEASURED_S, self._time_is_up)
            self._timer.daemon = True
            self._timer.start()

    def reading(self) -> Optional[RunTime]:
        """None when the kernel does not measure it (before Linux v5.8, commit d46edd671a14
        "bpf: Sharing bpf runtime stats with BPF_ENABLE_STATS")."""
        with self._lock:
            if self._measured_ns is None:
                return None
            times = {name: spent for name, (spent, _) in self._totals.items()}
            runs = {name: runs for name, (_, runs) in self._totals.items()}
            return RunTime(sum(times.values()), self._measured_ns, times, runs)

    def close(self) -> None:
        """Leave the kernel's statistics as they were."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            self._switch_off()

    def _switch_on(self) -> None:
        try:
            self._statistics = libbpf().call("bpf_enable_stats", STATS_RUN_TIME)
        except LibbpfError:
            if not self._measured_ns:
                self._measured_ns = None
            return
        self._began_ns, self._before = time.monotonic_ns(), self._read()

    def _time_is_up(self) -> None:
        with self._lock:
            self._account()
            self._switch_off()

    def _account(self) -> None:
        if self._statistics is None or self._measured_ns is None:
            return
        now_ns, runs_now = time.monotonic_ns(), self._read()
        for name, (spent, runs) in runs_now.items():
            before = self._before[name]
            total = self._totals.get(name, (0, 0))
            self._totals[name] = (total[0] + spent - before[0], total[1] + runs - before[1])
        self._measured_ns += now_ns - self._began_ns
        self._began_ns, self._before = now_ns, runs_now

    def _switch_off(self) -> None:
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None
