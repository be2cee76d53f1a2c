"""A running `udsprobe export`, from its first page on."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from prometheus_client.parser import text_string_to_metric_families

from tests.kernel.live import Ended
from tests.kernel.tool import REPOSITORY, UDSPROBE
from tests.patience import PATIENCE_S

SAID = "udsprobe: metrics at "
EARLIER = "udsprobe: full detail comes "
Series = Dict[Tuple[str, Tuple[Tuple[str, str], ...]], float]
TAKEN_AT = ("udsprobe_sample_timestamp_seconds", ())


class Exporting:
    """`udsprobe export ARGUMENTS`, killed at the end of the block if it still runs.

    Args:
        prefix: a command that runs it, such as `setpriv …`.

    Attributes:
        url: where it serves.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Optional[Mapping[str, str]] = None,
        prefix: Sequence[str] = (),
        cwd: Path = REPOSITORY,
    ) -> None:
        argv = [*prefix, *UDSPROBE, "export", "--bind", "127.0.0.1:0", *arguments]
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stderr is not None
        # With detail auto, how often full detail comes is told first.
        line = self._process.stderr.readline()
        while line.startswith(EARLIER):
            line = self._process.stderr.readline()
        if not line.startswith(SAID):
            self._process.kill()
            raise AssertionError(line + self._process.communicate()[1])
        self.url = line[len(SAID) :].strip()

    @property
    def address(self) -> str:
        return self.url[len("http://") : -len("/metrics")]

    def text(self) -> str:
        """One scrape."""
        with urllib.request.urlopen(self.url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def series(self) -> Series:
        """One scrape: (name, labels that are not empty) → value."""
        return {
            (found.name, tuple(sorted((k, v) for k, v in found.labels.items() if v))): found.value
            for family in text_string_to_metric_families(self.text())
            for found in family.samples
        }

    def wait_for_samples(self, count: int) -> None:
        """Until it has taken so many more."""
        for _ in range(count):
            before = self.series()[TAKEN_AT]
            while self.series()[TAKEN_AT] == before:
                time.sleep(0.02)

    def end(self, number: Optional[int] = signal.SIGTERM) -> Ended:
        """Send a signal, if any, and wait for the end."""
        if number is not None:
            self._process.send_signal(number)
        try:
            _, said = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return Ended(self._process.returncode, "", said)

    def __enter__(self) -> Exporting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def total(series: Series, metric: str, **labels: str) -> float:
    """The sum of a metric's series that have these labels."""
    wanted = set(labels.items())
    found: List[float] = [
        value
        for (named, having), value in series.items()
        if named == metric and wanted <= set(having)
    ]
    return sum(found)
