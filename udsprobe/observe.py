"""An observation from its first probe to its last sample.

Puts tracer, targets and collector together and keeps the order that exact
counts need: probes first, targets second; at the end probes off, then the
last reading.
"""

from __future__ import annotations

import os
import platform
import time
from typing import Iterable, List, Optional, Tuple

from udsprobe import __version__
from udsprobe.collector import Collector, SystemClock
from udsprobe.kernel.plan import measurements
from udsprobe.kernel.procfs import Procfs
from udsprobe.kernel.selectors import Chosen
from udsprobe.kernel.target_book import TargetBook
from udsprobe.kernel.tracer import Tracer
from udsprobe.model.difference import report
from udsprobe.model.report import Report
from udsprobe.sample import Observation


class Observer:
    """Live probes on chosen targets.

    Args:
        chosen: processes to begin with.
        interval_s: between two samples.
        follow: children of targets become targets.
        program: (comm, command line) that the one chosen process is about to
            become; it counts from that exec on.

    Attributes:
        first: the sample at the moment the targets were taken on.

    Raises:
        UdsprobeError: of `Tracer`.
    """

    def __init__(
        self,
        chosen: Iterable[Chosen],
        *,
        interval_s: float,
        follow: bool,
        program: Optional[Tuple[str, str]] = None,
    ) -> None:
        began_ns = time.monotonic_ns()
        procfs = Procfs()
        book = TargetBook(procfs)
        wanted = list(chosen)
        for process in wanted:
            book.expect(process.pid, process.via)
            if program is not None:
                book.expect_program(process.pid, *program)
        self._tracer = Tracer(follow=follow)
        try:
            self._collector = Collector(self._tracer, book, procfs, SystemClock())
            self._tracer.seed({p.pid: p.start_ticks for p in wanted}, dormant=program is not None)
            self.first = self._collector.sample()
        except BaseException:
            self._tracer.close()
            raise
        attach_ms = (time.monotonic_ns() - began_ns) / 1e6
        self._observation = self._describe(attach_ms, interval_s)
        self._last = self.first

    def targets_alive(self) -> int:
        """Targets that have not exited."""
        return self._tracer.counters.targets_alive()

    def alive_pids(self) -> List[int]:
        """PIDs of the targets that ran at the last sample."""
        return [target.pid for target in self._last.targets if target.state == "running"]

    def interval(self) -> Report:
        """What happened since the last call, or since the beginning."""
        previous, self._last = self._last, self._collector.sample()
        return report(self._observation, previous, self._last)

    def keep_up(self) -> None:
        """Take a sample and report nothing: what comes and goes has to be seen in time."""
        self._last = self._collector.sample()

    def window(self) -> Report:
        """What happened from the beginning to the last sample."""
        return report(self._observation, self.first, self._last)

    def stop(self) -> None:
        """Take the probes off; what they counted stays to be read."""
        self._tracer.detach()

    def finish(self) -> Report:
        """Take the probes off and report the whole window."""
        self.stop()
        self._last = self._collector.sample()
        return self.window()

    def close(self) -> None:
        """Give everything back."""
        self._collector.close()
        self._tracer.close()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self, attach_ms: float, interval_s: float) -> Observation:
        return Observation(
            version=__version__,
            kernel=platform.release(),
            arch=platform.machine(),
            cpus=os.cpu_count() or 1,
            hostname=platform.node(),
            strategy=self._tracer.strategy,
            measurements=measurements(self._tracer.attached),
            attach_ms=attach_ms,
            interval_s=interval_s,
        )
